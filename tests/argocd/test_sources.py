"""Editing the sources of an Application."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.argocd.application import Spec
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate, SourceUpdateError, edit_sources

REPO = "https://git.example.com/shop"
SHA = "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"

JsonObject = dict[str, Any]


def single(**more: Any) -> Spec:
    """A spec with one source."""
    return Spec(source={"repoURL": REPO, "path": ".", "targetRevision": "main", **more})


CASES: list[tuple[str, Spec, list[SourceUpdate], tuple[str, ...], JsonObject, JsonObject]] = [
    ("no updates", single(), [], ("",), {}, {}),
    ("a desired revision alone changes nothing", single(), [SourceUpdate(REPO, desired_revision=SHA)], (SHA,), {}, {}),
    (
        "target revision",
        single(),
        [SourceUpdate(REPO, desired_revision=SHA, update_target_revision=True)],
        (SHA,),
        {"source": {"targetRevision": SHA}},
        {"/spec/source/targetRevision": "main"},
    ),
    (
        "target revision that is there already",
        single(targetRevision=SHA),
        [SourceUpdate(REPO, desired_revision=SHA, update_target_revision=True)],
        (SHA,),
        {},
        {},
    ),
    (
        "a URL that differs in .git and case only",
        single(),
        [SourceUpdate("https://Git.example.com/shop.git", desired_revision=SHA, update_target_revision=True)],
        (SHA,),
        {"source": {"targetRevision": SHA}},
        {"/spec/source/targetRevision": "main"},
    ),
    (
        "kustomize images replace what was there",
        single(kustomize={"images": ["old:1"], "namePrefix": "x-"}),
        [SourceUpdate(REPO, kustomize_images=[KustomizeImage("a", tag="2"), KustomizeImage("b", digest="sha256:c")])],
        ("",),
        {"source": {"kustomize": {"images": ["a:2", "b@sha256:c"]}}},
        {"/spec/source/kustomize/images": ["old:1"]},
    ),
    (
        "a kustomize image under a new name",
        single(),
        [SourceUpdate(REPO, kustomize_images=[KustomizeImage("a", tag="2", new_name="mirror/a")])],
        ("",),
        {"source": {"kustomize": {"images": ["a=mirror/a:2"]}}},
        {"/spec/source/kustomize/images": None},
    ),
    (
        "helm parameters are set in place or added in order, and the rest of a parameter is kept",
        single(helm={"parameters": [{"name": "tag", "value": "1", "forceString": True}, {"name": "x", "value": "y"}]}),
        [SourceUpdate(REPO, helm_parameters=[HelmParameter("b", "3"), HelmParameter("tag", "2"),
                                             HelmParameter("a", "4")])],
        ("",),
        {"source": {"helm": {"parameters": [
            {"name": "tag", "value": "2", "forceString": True},
            {"name": "x", "value": "y"},
            {"name": "b", "value": "3"},
            {"name": "a", "value": "4"},
        ]}}},
        {"/spec/source/helm/parameters": [{"name": "tag", "value": "1", "forceString": True},
                                          {"name": "x", "value": "y"}]},
    ),
    (
        "one of several sources: the list can only be replaced whole",
        Spec(sources=[{"repoURL": REPO, "path": "a"}, {"repoURL": "https://charts.example.com", "chart": "db"}]),
        [SourceUpdate("https://charts.example.com", "db", "1.2.3", update_target_revision=True)],
        ("", "1.2.3"),
        {"sources": [{"repoURL": REPO, "path": "a"},
                     {"repoURL": "https://charts.example.com", "chart": "db", "targetRevision": "1.2.3"}]},
        {"/spec/sources/1/targetRevision": None},
    ),
    (
        "two updates of one source are merged",
        single(),
        [SourceUpdate(REPO, desired_revision=SHA, update_target_revision=True),
         SourceUpdate(REPO, desired_revision=SHA, helm_parameters=[HelmParameter("a", "1")])],
        (SHA,),
        {"source": {"targetRevision": SHA, "helm": {"parameters": [{"name": "a", "value": "1"}]}}},
        {"/spec/source/targetRevision": "main", "/spec/source/helm/parameters": None},
    ),
    (
        "the images and parameters of several updates are put together, in their order",
        single(),
        [SourceUpdate(REPO, kustomize_images=[KustomizeImage("b", tag="1")], helm_parameters=[HelmParameter("y", "1")]),
         SourceUpdate(f"{REPO}.git", kustomize_images=[KustomizeImage("a", tag="1"), KustomizeImage("b", tag="1")],
                      helm_parameters=[HelmParameter("x", "1"), HelmParameter("y", "1")])],
        ("",),
        {"source": {"kustomize": {"images": ["b:1", "a:1"]},
                    "helm": {"parameters": [{"name": "y", "value": "1"}, {"name": "x", "value": "1"}]}}},
        {"/spec/source/kustomize/images": None, "/spec/source/helm/parameters": None},
    ),
    (
        "a parameter that is there twice is set twice: to Helm the last one counts",
        single(helm={"parameters": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}),
        [SourceUpdate(REPO, helm_parameters=[HelmParameter("a", "")])],
        ("",),
        {"source": {"helm": {"parameters": [{"name": "a", "value": ""}, {"name": "a", "value": ""}]}}},
        {"/spec/source/helm/parameters": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
    ),
    (
        "the first source of a repository counts, and the reference to it stays as it is",
        Spec(sources=[{"repoURL": REPO, "ref": "values"}, {"repoURL": REPO, "path": "a"}]),
        [SourceUpdate(REPO, desired_revision=SHA, update_target_revision=True)],
        (SHA, ""),
        {"sources": [{"repoURL": REPO, "ref": "values", "targetRevision": SHA}, {"repoURL": REPO, "path": "a"}]},
        {"/spec/sources/0/targetRevision": None},
    ),
    (
        "chart repositories are compared as text, Git repositories with a chart on neither side are not",
        Spec(sources=[{"repoURL": f"{REPO}.git", "chart": "db"}, {"repoURL": f"{REPO}.git"}]),
        [SourceUpdate(REPO, desired_revision="b"), SourceUpdate(f"{REPO}.git", "db", "a")],
        ("a", "b"),
        {},
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "updates", "desired", "patch", "before"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_edit(
    spec: Spec, updates: list[SourceUpdate], desired: tuple[str, ...], patch: JsonObject, before: JsonObject
) -> None:
    """An edit is a patch of the fields that change, their values before, and the revision wanted of each source."""
    edit = edit_sources(spec, updates)

    assert (desired, patch, before) == (edit.desired, edit.spec_patch, edit.before)


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ([SourceUpdate("https://git.example.com/other")], "no source with repoURL https://git.example.com/other"),
        ([SourceUpdate(REPO, "chart")], "and chart chart"),
        (
            [SourceUpdate(REPO, kustomize_images=[KustomizeImage("a", tag="1"), KustomizeImage("a", tag="2")])],
            "two versions of the image a in the source with repoURL .*: a:1 and a:2",
        ),
        (
            [
                SourceUpdate(REPO, helm_parameters=[HelmParameter("a", "1")]),
                SourceUpdate(REPO, helm_parameters=[HelmParameter("a", "2")]),
            ],
            "two values of the Helm parameter a in the source with repoURL .*: 1 and 2",
        ),
        (
            [SourceUpdate(REPO, desired_revision="a"), SourceUpdate(REPO, desired_revision="b")],
            "two revisions of the source with repoURL https://git.example.com/shop: a and b",
        ),
    ],
    ids=["unknown repository", "no such chart", "images", "parameters", "revisions"],
)
def test_refused(updates: list[SourceUpdate], words: str) -> None:
    """An update that fits no source, or contradicts another one, is refused with the reason."""
    with pytest.raises(SourceUpdateError, match=words):
        edit_sources(single(), updates)


def test_the_spec_is_not_touched() -> None:
    """The edit is computed on a copy: the cache's object stays as it is."""
    spec = single(helm={"parameters": [{"name": "a", "value": "0"}]})

    edit_sources(spec, [SourceUpdate(REPO, helm_parameters=[HelmParameter("a", "1")])])

    assert spec == single(helm={"parameters": [{"name": "a", "value": "0"}]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("helm", "x"),
        ("helm", ["x"]),
        ("helm", {"parameters": "x"}),
        ("helm", {"parameters": ["x"]}),
        ("helm", {"parameters": [None]}),
        ("helm", {"parameters": {"a": 1}}),
        ("kustomize", "x"),
        ("kustomize", ["x"]),
    ],
)
def test_a_source_that_is_not_of_its_form(field: str, value: object) -> None:
    """Where the CRD has no schema anything may stand there: that is told, and nothing breaks."""
    update = SourceUpdate(
        "https://a.example/r",
        kustomize_images=[KustomizeImage("i", tag="t")],
        helm_parameters=[HelmParameter("k", "v")],
    )
    spec = Spec(source={"repoURL": "https://a.example/r", field: value})

    with pytest.raises(SourceUpdateError, match=f"cannot be changed: .*{field}.* must be"):
        edit_sources(spec, [update])
