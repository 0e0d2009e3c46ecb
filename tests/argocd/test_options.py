"""What a start asks of the operation."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kargo_py.argocd.application import Spec
from kargo_py.argocd.options import OptionsError, ResourceName, SyncOptions, demanded, fitted

SINGLE = Spec(source={"repoURL": "r"})
LISTED = Spec(sources=[{"repoURL": "r"}])
TWO = Spec(sources=[{"repoURL": "r"}, {"repoURL": "s"}])

FITS = [
    ("none", SINGLE, SyncOptions(prune=True), {"prune": True}),
    ("none of several", TWO, SyncOptions(), {}),
    ("one", SINGLE, SyncOptions(revision="a"), {"revision": "a"}),
    ("a list of one for a single source", SINGLE, SyncOptions(revisions=("a",)), {"revision": "a"}),
    ("one for a list with one source", LISTED, SyncOptions(revision="a"), {"revisions": ["a"]}),
    ("several", TWO, SyncOptions(revisions=("a", "")), {"revisions": ["a", ""]}),
    ("a list of nothing", TWO, SyncOptions(revisions=("",)), {}),
    (
        "everything",
        SINGLE,
        SyncOptions(dry_run=True, resources=(ResourceName("Deployment", "web", "apps"), ResourceName("Service", "w"))),
        {"dryRun": True, "resources": [{"kind": "Deployment", "name": "web", "group": "apps"},
                                       {"kind": "Service", "name": "w"}]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "options", "wire"), [case[1:] for case in FITS], ids=[case[0] for case in FITS])
def test_fitted(spec: Spec, options: SyncOptions, wire: dict[str, object]) -> None:
    """The revision goes into the one of the two fields that Argo CD reads for such an Application."""
    assert fitted(options, spec).wire() == wire


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        (TWO, SyncOptions(revision="a"), "has 2 sources, so that revision does not say which"),
        (TWO, SyncOptions(revisions=("a",)), "has 2 sources, while revisions has 1 entries"),
        (SINGLE, SyncOptions(revisions=("a", "b")), "has 1 sources, while revisions has 2 entries"),
        (Spec(), SyncOptions(revision="a"), "has 0 sources"),
    ],
)
def test_refused(spec: Spec, options: SyncOptions, words: str) -> None:
    """Revisions that Argo CD would ignore without a word are refused."""
    with pytest.raises(OptionsError, match=words):
        fitted(options, spec)


@given(
    count=st.integers(1, 3),
    listed=st.booleans(),
    options=st.builds(
        SyncOptions, revision=st.sampled_from(["", "a"]), revisions=st.lists(st.sampled_from(["", "a"])).map(tuple)
    ),
)
def test_what_argocd_reads(count: int, listed: bool, options: SyncOptions) -> None:
    """Whatever is asked for: it is refused, or the field that Argo CD reads has all of it in the right length."""
    several = listed or count > 1
    spec = Spec(sources=[{"repoURL": "r"}] * count) if several else SINGLE
    try:
        sync = fitted(options, spec)
    except OptionsError:
        return
    assert not (sync.revision and several)
    assert len(sync.revisions) in ({0, count} if several else {0})
    assert tuple(filter(None, sync.asked)) == tuple(filter(None, options.asked))


@pytest.mark.parametrize(
    ("desired", "options", "expected"),
    [
        ((), SyncOptions(), ()),
        (("a",), SyncOptions(), ("a",)),
        ((), SyncOptions(revision="b"), ("b",)),
        (("a",), SyncOptions(revision="b"), ("a",)),
        (("", "a"), SyncOptions(revisions=("b", "c")), ("b", "a")),
        ((), SyncOptions(revisions=("", "c")), ("", "c")),
        (("a", "b"), SyncOptions(revision="c"), ("a", "b")),
    ],
)
def test_demanded(desired: tuple[str, ...], options: SyncOptions, expected: tuple[str, ...]) -> None:
    """What is desired goes before what was asked for; records that contradict themselves keep what is desired."""
    assert demanded(desired, options) == expected
