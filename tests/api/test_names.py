"""Names that other programs must arrive at too: Kargo's own results, and what must hold for every input.

The normal forms of URLs are what Kargo's functions give, run with Go 1.26 and go-containerregistry 0.22.
"""

import re
import threading
from collections.abc import Callable
from hashlib import sha1

import pytest
from hypothesis import given, strategies as st

from kargo_py.api import names
from kargo_py.api.freight import ArtifactReference, Chart, FreightOrigin, GitCommit, Image, collection_id
from kargo_py.api.types import KUBERNETES_NAME_PATTERN

# --- Labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("dev", "dev"),
        ("a" * 63, "a" * 63),
        ("a" * 70, "a" * 54 + "-6bd5e503"),
        ("a" * 50 + "----" + "b" * 20, "a" * 50 + "-8a3df63b"),
    ],
    ids=["short", "just fits", "Kargo's", "ends in dashes"],
)
def test_shorten_label(value: str, label: str) -> None:
    """A value that does not fit is cut, and tells itself apart by a hash of the whole."""
    assert names.shorten_label(value) == label


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True))
def test_shortened_labels_are_labels(value: str) -> None:
    """Whatever the name, the result is a label value, and shortening it again changes nothing."""
    label = names.shorten_label(value)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", label)
    assert names.shorten_label(label) == label


# --- Promotion names ------------------------------------------------------------------------------------------------

ULID = "01jyz8q4n8v5k2m3r7t9w1x6ab"


def test_ulid() -> None:
    """A ULID is 48 bits of milliseconds and 80 of chance, in lower case; the text is the one of the ULID standard."""
    source = names.UlidSource(clock=lambda: 1469918176.3855, randbits=lambda bits: 2**bits - 1)
    assert source.new() == "01aryz6s41zzzzzzzzzzzzzzzz"


@given(
    times=st.lists(st.floats(0, 2**37), min_size=2, max_size=20),
    chance=st.lists(st.integers(0, 2**80 - 1), min_size=20, max_size=20),
)
def test_ulids_strictly_increase(times: list[float], chance: list[int]) -> None:
    """Each ULID is greater than the one before, also when the clock stands still or runs backwards."""
    clock, bits = iter(times), iter(chance)
    source = names.UlidSource(clock=lambda: next(clock), randbits=lambda _: next(bits))
    made = [source.new() for _ in times]
    assert made == sorted(set(made))
    assert all(re.fullmatch("[0-7][0-9a-hjkmnp-tv-z]{25}", ulid) for ulid in made)


def test_ulids_of_several_threads_differ() -> None:
    """Threads that share a source never get the same ULID, and each sees its own increase."""
    source = names.UlidSource(clock=lambda: 1.0)
    together = threading.Barrier(4)
    made: list[list[str]] = [[] for _ in range(4)]

    def make(mine: list[str]) -> None:
        together.wait()
        mine.extend(source.new() for _ in range(500))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({ulid for mine in made for ulid in mine}) == 2000
    assert all(mine == sorted(mine) for mine in made)


def test_ulid_has_an_end() -> None:
    """A clock beyond what 48 bits of milliseconds hold is an error until it is right again, and no ULID."""
    times = iter([2.0**48, 1.0])
    source = names.UlidSource(clock=lambda: next(times))
    with pytest.raises(OverflowError, match="10889"):
        source.new()
    assert source.new().startswith("00000000z8")


@pytest.mark.parametrize(
    ("stage", "freight", "name"),
    [
        ("dev", "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e", f"dev.{ULID}.3f1a0f6"),
        ("dev", "abc", f"dev.{ULID}.abc"),
        ("a" * 253, "3f1a0f6a5c", f"{'a' * 218}.{ULID}.3f1a0f6"),
        ("a" * 216 + ".-" + "b" * 35, "3f1a0f6a5c", f"{'a' * 216}.{ULID}.3f1a0f6"),
        ("dev", "my-rel-1", f"dev.{ULID}.my-rel"),
    ],
    ids=["usual", "short Freight", "long Stage", "cut behind a dot", "Freight named by hand"],
)
def test_promotion_name(stage: str, freight: str, name: str) -> None:
    """A Promotion is named after its Stage, its ULID and the beginning of its Freight, in at most 253 characters."""
    assert names.promotion_name(stage, freight, ULID) == name


NAMES = st.from_regex(KUBERNETES_NAME_PATTERN, fullmatch=True).map(lambda name: name.rstrip("\n"))


@given(stage=NAMES.filter(lambda name: len(name) <= 253), freight=NAMES.filter(lambda name: len(name) <= 253))
def test_promotion_names_are_names(stage: str, freight: str) -> None:
    """Whatever valid names the Stage and the Freight have, the Promotion's is valid."""
    name = names.promotion_name(stage, freight, ULID)
    assert len(name) <= 253
    assert re.fullmatch(KUBERNETES_NAME_PATTERN, name)


@pytest.mark.parametrize(("stage", "freight"), [("", "abc"), ("dev", ""), ("dev", "-.-")])
def test_promotion_name_needs_its_parts(stage: str, freight: str) -> None:
    """Without a Stage or Freight there is no name, and the error says what was given."""
    with pytest.raises(ValueError, match="needs Stage, ULID and Freight") as caught:
        names.promotion_name(stage, freight, ULID)
    assert repr(freight) in str(caught.value)


# --- Freight names --------------------------------------------------------------------------------------------------

ORIGIN = FreightOrigin(kind="Warehouse", name="my-wh")
COMMIT = GitCommit(repo_url="https://github.com/Example/Repo.git", id="abc123")
IMAGE = Image(repo_url="nginx", tag="1.27", digest="sha256:aa")
CHART = Chart(repo_url="oci://ghcr.io/Example/chart", version="1.2.3")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (names.freight_name(ORIGIN, [COMMIT]), "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"),
        (names.freight_name(ORIGIN, [COMMIT.replace(tag="v1.0.0")]), "9270b3a35b2035af81cf1a142376c2798ccae77b"),
        (names.freight_name(ORIGIN, images=[IMAGE]), "166c0abf8edcd80e7a17fcade9e6805898426a21"),
        (names.freight_name(ORIGIN, charts=[CHART]), "6990921c7b44a3af8fb7ec668e41b745303d2ce3"),
    ],
    ids=["commit", "commit with tag", "image", "chart"],
)
def test_freight_name_is_kargos(name: str, expected: str) -> None:
    """The same Freight gets the same name from Kargo, whose results these are."""
    assert name == expected


def _sha1(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (names.freight_name(ORIGIN), ""),
        (
            names.freight_name(ORIGIN, [COMMIT.replace(subscription_name="sub", tag="v1")]),
            "https://github.com/example/repo:v1:abc123:sub",
        ),
        (names.freight_name(ORIGIN, [COMMIT.replace(id="")]), "https://github.com/example/repo:"),
        (names.freight_name(ORIGIN, images=[IMAGE.replace(subscription_name="i")]), "nginx:1.27@sha256:aa:i"),
        (
            names.freight_name(ORIGIN, charts=[Chart(repo_url="https://X/", name="foo", version="1")]),
            "https:/x/foo:1",
        ),
        (
            names.freight_name(ORIGIN, artifacts=[ArtifactReference(artifact_type="t", version="1")]),
            "t::1",
        ),
        (
            names.freight_name(ORIGIN, [COMMIT], [IMAGE], [CHART]),
            "ghcr.io/example/chart:1.2.3|https://github.com/example/repo:abc123|nginx:1.27@sha256:aa",
        ),
    ],
    ids=["empty", "commit of a subscription", "no id", "image of a subscription", "chart", "artifact", "sorted"],
)
def test_freight_name(name: str, text: str) -> None:
    """The name is the SHA-1 of the origin and the sorted artifacts in their normal form."""
    assert name == _sha1(f"Warehouse/my-wh:{text}")


@given(st.permutations([COMMIT, COMMIT.replace(id="def"), COMMIT.replace(tag="v2")]))
def test_freight_name_needs_no_order(commits: list[GitCommit]) -> None:
    """The order in which artifacts are listed does not matter."""
    repo = "https://github.com/example/repo"
    assert names.freight_name(ORIGIN, commits) == _sha1(f"Warehouse/my-wh:{repo}:abc123|{repo}:def|{repo}:v2:abc123")


def test_collection_id() -> None:
    """A collection is the SHA-1 of the sorted names of its Freight, joined by commas."""
    assert collection_id(["b", "a"]) == collection_id(["a", "b"]) == _sha1("a,b")


# --- URLs -----------------------------------------------------------------------------------------------------------

GIT = [
    ("https://github.com/Example/Repo", "https://github.com/example/repo"),
    ("https://github.com/example/repo.git/", "https://github.com/example/repo"),
    ("https://github.com/example/repo//", "https://github.com/example/repo/"),
    ("https://github.com/", "https://github.com"),
    ("https://user:token@localhost:8443/example/repo.git", "https://localhost:8443/example/repo"),
    ("http://[::1]:8080/repo.git", "http://[::1]:8080/repo"),
    ("https://h/a%20b.git", "https://h/a%20b"),
    ("https://h/ü.git", "https://h/%C3%BC"),
    ("https://h/a(b)", "https://h/a(b)"),
    ("https://h/a(b).git", "https://h/a%28b%29"),
    ("https://h/repo.git#main", "https://h/repo#main"),
    ("ssh://git@github.com:22/example/repo.git", "ssh://git@github.com:22/example/repo"),
    ("git@github.com:Example/repo.git", "ssh://git@github.com/example/repo"),
    ("git@github.com:/example/repo/", "ssh://git@github.com//example/repo"),
    ("github.com:example/repo", "ssh://github.com/example/repo"),
    ("git.example.com", "ssh://git.example.com"),
    (" \ufeffhttps://github.com/example/repo\u200b ", "https://github.com/example/repo"),
]
GIT_UNCHANGED = [
    *("", "not a url", "https://not a url", "https://h/Repo.git?ref=main", "https://h/a%zz", "https://h:port/A.git"),
    *("git@h:A:b", " Not A Url "),
]


@pytest.mark.parametrize(("url", "normal"), [*GIT, *((url, url) for url in GIT_UNCHANGED)])
def test_normalize_git(url: str, normal: str) -> None:
    """Spellings of one repository have one normal form; what is no Git URL stays as it is."""
    assert names.normalize_git(url) == normal


IMAGES = [
    ("nginx", "nginx"),
    ("NGINX:1.27", "nginx"),
    ("docker.io/nginx", "nginx"),
    ("docker.io/foo/bar", "foo/bar"),
    ("index.docker.io/library/nginx", "nginx"),
    ("library/nginx", "nginx"),
    ("ghcr.io/Example/app:v1", "ghcr.io/example/app"),
    ("ghcr.io/library/app", "ghcr.io/library/app"),
    ("localhost/app", "localhost/app"),
    ("localhost:5000/app:1", "localhost:5000/app"),
    ("foo:5000/bar", "foo:5000/bar"),
    (f"foo/bar@sha256:{'a' * 64}", "foo/bar"),
    (f"nginx:1.27@sha256:{'0' * 64}", "nginx"),
    (" quay.io/a\ufeff", "quay.io/a"),
]
IMAGES_UNCHANGED = [
    "",
    "Foo:",
    "Foo:!",
    "foo@sha256:AA",
    "https://Charts.example.com/",
    "foo bar",
    "x" * 256,
    "a%B.io/x",
]


@pytest.mark.parametrize(("url", "normal"), [*IMAGES, *((url, url) for url in IMAGES_UNCHANGED)])
def test_normalize_image(url: str, normal: str) -> None:
    """Spellings of one image repository have one normal form; what is no image reference stays as it is."""
    assert names.normalize_image(url) == normal


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("oci://GHCR.io/Example/chart", "ghcr.io/example/chart"),
        ("OCI://docker.io/foo/bar", "foo/bar"),
        ("https://Charts.Example.com/", "https://charts.example.com/"),
        ("https://charts.example.com:8443", "https://charts.example.com:8443"),
    ],
)
def test_normalize_chart(url: str, normal: str) -> None:
    """A chart in an OCI registry is compared as an image is; the URL of a repository is only put into lower case."""
    assert names.normalize_chart(url) == normal


@pytest.mark.parametrize("normalize", [names.normalize_git, names.normalize_image, names.normalize_chart])
@given(
    parts=st.lists(
        st.sampled_from(
            ["https://", "ssh://", "git@", "oci://", "h", "x.io", ":", "/", "A", ".git", "%", "%2F", "?", "@"]
        )
    )
)
def test_normalizing_never_fails(normalize: Callable[[str], str], parts: list[str]) -> None:
    """No text, however broken, is an error."""
    url = "".join(parts)
    assert isinstance(normalize(url), str)


# --- Who may, and who did -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stages"),
    [
        ("shop:dev", {"shop:dev"}),
        ("shop:dev,shop:prod", {"shop:dev", "shop:prod"}),
        (" shop : dev , ,shop:dev,", {"shop:dev"}),
        ("shop:dev:x", {"shop:dev:x"}),
    ],
    ids=["one", "two", "spaces and empty entries", "the first colon counts"],
)
def test_authorized_stages(value: str, stages: set[str]) -> None:
    """The annotation names the Stages that may manage an Application."""
    assert names.authorized_stages(value) == stages


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "it names no <project>:<stage>"),
        (" , ,", "it names no <project>:<stage>"),
        ("dev", "entry 'dev' is not of the form <project>:<stage>"),
        ("shop:dev,shop:", "entry 'shop:' is not of the form <project>:<stage>"),
        (": dev", "entry ': dev' is not of the form <project>:<stage>"),
        ("shop:*", "entry 'shop:*' has a wildcard, which is not supported"),
        ("sh*p:dev, shop:dev", "entry 'sh*p:dev' has a wildcard, which is not supported"),
    ],
    ids=["empty", "only commas", "no colon", "no stage", "no project", "any stage", "glob in the project"],
)
def test_one_wrong_entry_authorizes_nobody(value: str, reason: str) -> None:
    """A wrong entry makes the whole annotation an error that says which entry and why."""
    with pytest.raises(names.AuthorizedStageError) as caught:
        names.authorized_stages(value)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("annotation", "user", "username"),
    [
        ("email:ann@example.com", "ann@example.com", "ann@example.com"),
        ("kubernetes:system:serviceaccount:ci:bot", "system:serviceaccount:ci:bot", "system:serviceaccount:ci:bot"),
        ("admin", "admin", "admin"),
        ("unknown actor", None, "kargo-controller"),
        ("email:", None, "kargo-controller"),
        ("", None, "kargo-controller"),
        (None, None, "kargo-controller"),
    ],
    ids=["email", "colons in the user", "admin", "unknown", "nobody", "empty", "absent"],
)
def test_actor(annotation: str | None, user: str | None, username: str) -> None:
    """An operation is started in the name of whoever asked for the Promotion, else of the controller."""
    actor = names.Actor.of(annotation)
    assert (actor.user, actor.username) == (user, username)


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_keys_are_kargos() -> None:
    """Keys stand in Kargo's own group, none means two things of a family, and Events carry Kargo's prefix."""
    families = {
        family: [value for name, value in vars(names).items() if name.startswith(family)]
        for family in ("ANNOTATION_", "LABEL_")
    }
    for keys in families.values():
        assert len(keys) == len(set(keys)) > 5
        assert all(re.fullmatch(r"kargo\.akuity\.io/[a-z-]+", key) for key in keys)
    assert all(re.fullmatch(r"event\.kargo\.akuity\.io/[a-z-]+", key) for key in names.EventAnnotation)
    assert names.EventAnnotation.PROMOTION_NAME.value == "event.kargo.akuity.io/promotion-name"
    assert all(re.fullmatch(r"(Promotion|Freight)[A-Za-z]+", reason) for reason in names.EventReason)
