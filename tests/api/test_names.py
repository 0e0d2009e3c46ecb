"""Names: the same Freight gets the same name from Kargo and from this program."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.freight import ArtifactReference, Chart, FreightOrigin, GitCommit, Image
from kargo_py.api.names import (
    Actor,
    AuthorizedStageError,
    UlidSource,
    authorized_stages,
    freight_name,
    normalize_chart,
    normalize_git,
    normalize_image,
    promotion_name,
    shorten_label,
)
from kargo_py.api.types import KUBERNETES_NAME_PATTERN

ORIGIN = FreightOrigin(kind="Warehouse", name="my-wh")


def test_golden_freight_names() -> None:
    """Values computed by Kargo's own code."""
    commit = GitCommit(repo_url="https://github.com/Example/Repo.git", id="abc123")
    assert freight_name(ORIGIN, [commit]) == "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"
    assert freight_name(ORIGIN, [commit.replace(tag="v1.0.0")]) == "9270b3a35b2035af81cf1a142376c2798ccae77b"
    image = Image(repo_url="nginx", tag="1.27", digest="sha256:aa")
    assert freight_name(ORIGIN, images=[image]) == "166c0abf8edcd80e7a17fcade9e6805898426a21"
    chart = Chart(repo_url="oci://ghcr.io/Example/chart", version="1.2.3")
    assert freight_name(ORIGIN, charts=[chart]) == "6990921c7b44a3af8fb7ec668e41b745303d2ce3"


def test_freight_names_do_not_depend_on_order() -> None:
    """The same artifacts in another order are the same Freight; another subscription is not."""
    one, two = Image(repo_url="a", tag="1"), Image(repo_url="b", tag="2")
    generic = ArtifactReference(artifact_type="t", subscription_name="s", version="1")

    assert freight_name(ORIGIN, images=[one, two]) == freight_name(ORIGIN, images=[two, one])
    assert freight_name(ORIGIN, images=[one]) != freight_name(ORIGIN, images=[one.replace(subscription_name="x")])
    assert freight_name(ORIGIN, artifacts=[generic]) != freight_name(ORIGIN)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://github.com/Example/Repo.git", "https://github.com/example/repo"),
        ("https://github.com/example/repo/", "https://github.com/example/repo"),
        ("https://github.com/example/repo.git/", "https://github.com/example/repo"),
        ("https://user:pass@github.com/example/repo", "https://github.com/example/repo"),
        ("http://github.com:8080/example/repo.git", "http://github.com:8080/example/repo"),
        ("ssh://git@github.com/example/repo.git", "ssh://git@github.com/example/repo"),
        ("git@github.com:example/Repo.git", "ssh://git@github.com/example/repo"),
        ("github.com:example/repo", "ssh://github.com/example/repo"),
        ("  https://github.com/example/repo\n", "https://github.com/example/repo"),
        ("https://github.com/example/repo?x=Y", "https://github.com/example/repo?x=Y"),
        ("not a url", "not a url"),
        ("", ""),
    ],
)
def test_normalize_git(url: str, normal: str) -> None:
    """Git URLs that name the same repository compare equal; what is no URL stays as it is."""
    assert normal == normalize_git(url)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("nginx", "nginx"),
        ("docker.io/nginx", "nginx"),
        ("docker.io/library/nginx", "nginx"),
        ("library/nginx", "nginx"),
        ("docker.io/foo/bar", "foo/bar"),
        ("index.docker.io/foo/bar:1.2", "foo/bar"),
        ("GHCR.io/Foo/Bar:v1", "ghcr.io/foo/bar"),
        ("localhost:5000/foo", "localhost:5000/foo"),
        ("https://example.com/charts/", "https://example.com/charts/"),
        ("not an image", "not an image"),
    ],
)
def test_normalize_image(url: str, normal: str) -> None:
    """Image repositories that are the same compare equal; what is none stays as it is."""
    assert normal == normalize_image(url)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("oci://ghcr.io/Example/chart", "ghcr.io/example/chart"),
        ("https://Charts.example.com/", "https://charts.example.com/"),
    ],
)
def test_normalize_chart(url: str, normal: str) -> None:
    """Chart repositories: an OCI one as an image, a classic one only in lower case."""
    assert normal == normalize_chart(url)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=50))
def test_ulids_increase(steps: list[int]) -> None:
    """ULIDs made in the same or a later millisecond, or by a clock that went backwards, strictly increase."""
    now = [1_764_500_000.0]
    source = UlidSource(clock=lambda: now[0], randbits=lambda _bits: 2**80 - 1)
    made = []
    for step in steps:
        now[0] += (step - 1) / 1000
        made.append(source.new())

    assert made == sorted(set(made))
    assert all(re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", ulid) for ulid in made)


def test_ulids_from_threads() -> None:
    """No two threads get the same one."""
    source = UlidSource()
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(source.new() for _ in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 800


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,300}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
)
def test_promotion_names_are_valid(stage: str, freight: str) -> None:
    """The name of a Promotion to a Stage of any length is at most 253 characters and sorts by its ULID."""
    stage = re.sub(r"[.-]*\.[.-]*", ".", stage)
    name = promotion_name(stage, freight, UlidSource().new())

    assert len(name) <= 253
    assert re.fullmatch(KUBERNETES_NAME_PATTERN, name)
    assert name.endswith(freight[:7])


def test_shortened_label() -> None:
    """The value computed by Kargo's own code."""
    assert shorten_label("a" * 70) == "a" * 54 + "-6bd5e503"
    assert shorten_label("a" * 63) == "a" * 63


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,200}[a-z0-9])?", fullmatch=True))
def test_shortened_labels_fit(value: str) -> None:
    """A label value is at most 63 characters, and short ones are left alone."""
    short = shorten_label(value)
    assert len(short) <= 63
    assert short == value or len(value) > 63


@pytest.mark.parametrize(
    ("value", "stages"),
    [("shop:dev", {"shop:dev"}), (" shop:dev , ,shop:qa,", {"shop:dev", "shop:qa"})],
)
def test_authorized_stages(value: str, stages: set[str]) -> None:
    """Entries are separated by commas; spaces and empty entries do not matter."""
    assert stages == authorized_stages(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [("", "names no"), (" , ", "names no"), ("shop", "not of the form"), ("shop:", "not of the form"),
     (":dev", "not of the form"), ("shop:dev,a:b:c", "'a:b:c' is not"), ("shop:*", "wildcard"), ("*:dev", "wildcard")],
)  # fmt: skip
def test_malformed_authorization(value: str, words: str) -> None:
    """One wrong entry makes the whole value authorise nobody, and is named."""
    with pytest.raises(AuthorizedStageError, match=re.escape(words)):
        authorized_stages(value)


@pytest.mark.parametrize(
    ("annotation", "username", "manual"),
    [(None, "kargo-controller", False), ("", "kargo-controller", False), ("unknown actor", "kargo-controller", False),
     ("email:a@b", "a@b", True), ("kubernetes:system:serviceaccount:x:y", "system:serviceaccount:x:y", True),
     ("admin", "admin", True)],
)  # fmt: skip
def test_actor(annotation: str | None, username: str, manual: bool) -> None:
    """Who created the Promotion appears as the one who started the sync; without them it is an automated one."""
    actor = Actor.of(annotation)
    assert (username, manual) == (actor.username, actor.user is not None)
