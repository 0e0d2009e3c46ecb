"""The configuration of argocd-update."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.argocd.options import ResourceName, SyncOptions
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate
from kargo_py.deployers.argocd_admission import TargetError
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_update_config import Wishes, read_config

APP = {"name": "a"}
SOURCE = {"repoURL": "r"}


def app(**source: Any) -> dict[str, Any]:
    """A configuration with one source."""
    return {"apps": [{**APP, "sources": [{**SOURCE, **source}]}]}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "config: must be an object, with fields"),
        ("guestbook", "config: must be an object, with fields"),
        ({"apps": ["guestbook"]}, "config.apps[0]: must be an object, with fields"),
        ({"apps": {"name": "guestbook"}}, "config.apps: must be a list"),
        (app(repoURL=""), "config.apps[0].sources[0].repoURL: must not be empty"),
        ({}, "config.apps: must be given"),
        ({"apps": []}, "config.apps: must not be empty"),
        ({"apps": [{}]}, "config.apps[0]: exactly one of name and selector must be given"),
        ({"apps": [{"name": ""}]}, "config.apps[0]: exactly one of name and selector must be given"),
        ({"apps": [{"name": "a", "selector": {"matchLabels": {"a": "b"}}}]}, "config.apps[0]: exactly one of"),
        ({"apps": [{"selector": {"matchLabels": {"a": 1}}}]}, "config.apps[0].selector: matchLabels['a']"),
        ({"apps": [{"name": "a", "waitForCreation": "soon"}]}, "config.apps[0].waitForCreation"),
        ({"apps": [{"name": "a", "waitForCreation": "-5m"}]}, "config.apps[0].waitForCreation"),
        ({"apps": [{"name": "a"}], "onPartialFailure": "stop"}, "config.onPartialFailure"),
        ({"apps": [{"name": "a", "selector": {}}]}, "config.apps[0].selector"),
        ({"apps": [{"name": "a"}], "more": 1}, "config.more: there is no such field"),
        (app(updateTargetRevision=True), "config.apps[0].sources[0]: updateTargetRevision needs a desiredRevision"),
        (app(repo_url="r"), "config.apps[0].sources[0].repo_url"),
        (app(kustomize={"images": []}), "config.apps[0].sources[0].kustomize.images"),
        (app(kustomize={"images": [{"repoURL": "i"}]}), "images[0]: exactly one of tag and digest must be given"),
        (app(kustomize={"images": [{"repoURL": "i", "tag": "1", "digest": "d"}]}), "exactly one of tag and digest"),
        (app(helm={"images": [{"key": "k"}]}), "config.apps[0].sources[0].helm.images[0].value: must be given"),
        *(
            (
                app(desiredRevision=unquoted),
                "config.apps[0].sources[0].desiredRevision: must be a string; put it in quotes",
            )
            for unquoted in (0, 1.3, True)
        ),
        ({"apps": [{"name": 7}]}, "config.apps[0].name: must be a string"),
        (app(desiredRevision=["a"]), "config.apps[0].sources[0].desiredRevision: must be a valid string"),
        ({"apps": [{"name": "a", "revision": "x", "revisions": ["x"]}]}, "only one of revision and revisions"),
        ({"apps": [{"name": "a", "revision": 123456}]}, "config.apps[0].revision: must be a string; put it in quotes"),
        ({"apps": [{"name": "a", "resources": []}]}, "config.apps[0].resources: must not be empty"),
        ({"apps": [{"name": "a", "resources": [{"name": "x"}]}]}, "config.apps[0].resources[0].kind: must be given"),
        *(
            (
                {"apps": [{"name": "a", "dryRun": True, "sources": [{**SOURCE, **change}]}]},
                "config.apps[0]: dryRun changes nothing",
            )
            for change in (
                {"desiredRevision": "x", "updateTargetRevision": True},
                {"helm": {"images": [{"key": "k", "value": "v"}]}},
                {"kustomize": {"images": [{"repoURL": "i", "tag": "t"}]}},
            )
        ),
        *(
            (app(desiredRevision="x", updateTargetRevision=no_flag), "updateTargetRevision: must be true or false")
            for no_flag in ("maybe", "yes", "true", 1)
        ),
        *(
            ({"apps": [{"name": "a", flag: "no"}]}, f"config.apps[0].{flag}: must be true or false, without quotes")
            for flag in ("prune", "dryRun", "acceptNewer", "healthCheck", "operationStartedEvent")
        ),
        *(
            ({"apps": [{"name": "a", **wrong}]}, "cannot be the name of an object of Kubernetes")
            for wrong in ({"name": ".."}, {"name": "a/b"}, {"name": "a\n"}, {"name": "x" * 254}, {"namespace": "A"})
        ),
        ({"apps": {}}, "config.apps: must be a list"),
        ({"apps": "a"}, "config.apps: must be a list"),
        ({"apps": [[]]}, "config.apps[0]: must be an object, with fields"),
    ],
)
def test_invalid(config: object, words: str) -> None:
    """Whatever is wrong is named by its place in the configuration."""
    with pytest.raises(ValueError, match="config") as caught:
        read_config(config)

    assert words in str(caught.value)


def test_requests() -> None:
    """Entries that name the same Application are one request; the namespace has a default."""
    config = read_config(
        {
            "apps": [
                {"name": "a", "sources": [{**SOURCE, "desiredRevision": "x", "updateTargetRevision": True}]},
                {"name": "b", "namespace": "other"},
                {
                    "name": "a",
                    "namespace": "argocd",
                    "sources": [
                        {
                            **SOURCE,
                            "kustomize": {"images": [{"repoURL": "i", "digest": "d", "newName": "n"}]},
                            "helm": {"images": [{"key": "k", "value": "v"}]},
                        }
                    ],
                },
            ]
        }
    )

    wishes = Wishes(config, "shop:dev", "argocd")
    first, second = wishes.request(Key("argocd", "a")), wishes.request(Key("other", "b"))

    assert (Key("argocd", "a"), "shop:dev") == (first.key, first.stage)
    assert [
        SourceUpdate("r", desired_revision="x", update_target_revision=True, kustomize_images=[], helm_parameters=[]),
        SourceUpdate("r", kustomize_images=[KustomizeImage("i", digest="d", new_name="n")],
                     helm_parameters=[HelmParameter("k", "v")]),
    ] == list(first.updates)  # fmt: skip
    assert Key("other", "b") == second.key


@pytest.mark.parametrize(
    ("key", "entries"),
    [
        (Key("argocd", "b"), ()),
        (Key("argocd", "a"), (7,)),
        (Key("argocd", "a"), (-1,)),
        (Key("argocd", "b"), (0,)),
        (Key("other", "b"), (1,)),
    ],
)
def test_not_asked_for(key: Key, entries: tuple[int, ...]) -> None:
    """What was on record when somebody edited the steps is not taken for something else."""
    config = read_config({"apps": [{"name": "a"}, {"selector": {"matchLabels": {"x": "y"}}}]})

    with pytest.raises(TargetError, match=r"not in spec\.steps any more"):
        Wishes(config, "shop:dev", "argocd").request(key, entries)


def test_options() -> None:
    """Options of several entries for one Application are put together; what is not given is left to the others."""
    config = read_config(
        {
            "apps": [
                {"name": "a", "prune": True, "resources": [{"kind": "Service", "name": "w"}], "revision": "x"},
                {"name": "a", "resources": [{"kind": "Pod", "name": "p", "group": "", "namespace": "n"}],
                 "healthCheck": False},
                {"name": "a", "resources": [{"kind": "Service", "name": "w"}], "operationStartedEvent": True,
                 "healthCheck": False, "acceptNewer": True},
                {"name": "b", "dryRun": True, "revisions": ["", "y"]},
            ]
        }
    )  # fmt: skip

    wishes = Wishes(config, "shop:dev", "argocd")
    first, second = wishes.request(Key("argocd", "a")), wishes.request(Key("argocd", "b"))

    both = (ResourceName("Service", "w"), ResourceName("Pod", "p", namespace="n"))
    assert first.sync == SyncOptions(prune=True, resources=both, revision="x")
    assert (first.health_check, first.event, first.accept_newer) == (False, True, True)
    assert second.sync == SyncOptions(dry_run=True, revisions=("", "y"))
    assert (second.health_check, second.event, second.accept_newer) == (True, False, False)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"prune": True}, {"prune": False}, "prune is true in the one and false in the other"),
        ({"dryRun": True}, {}, "dryRun is true in the one and false in the other"),
        ({"resources": [{"kind": "a", "name": "b"}]}, {}, "resources is given in the one and absent in the other"),
        ({"revision": "a"}, {"revision": "b"}, "revision is a in the one and b in the other"),
        ({"revisions": ["a", ""]}, {"revisions": ["a"]}, 'revisions is ["a", ""] in the one and ["a"] in the other'),
        ({"revision": "a"}, {"revisions": ["a"]}, "revision(s) is revision in the one and revisions in the other"),
        ({"healthCheck": False}, {"healthCheck": True}, "healthCheck is false in the one and true in the other"),
        ({"acceptNewer": False}, {"acceptNewer": True}, "acceptNewer is false in the one and true in the other"),
        ({"revision": "a" * 500}, {"revision": "b"}, f"revision is {'a' * 80}… in the one"),
    ],
)
def test_contradictions(one: dict[str, Any], other: dict[str, Any], words: str) -> None:
    """Entries that contradict each other about an Application are refused, naming both and the field."""
    entries = [{"name": "z"}, {"name": "a", **one}, {"name": "b"}, {"name": "a", "namespace": "argocd", **other}]
    config = read_config({"apps": entries})

    with pytest.raises(ValueError, match=r"config.apps\[1\] and config.apps\[3\] contradict each other") as caught:
        Wishes(config, "shop:dev", "argocd")

    assert words in str(caught.value)
    assert 'Argo CD Application "a" in namespace "argocd"' in str(caught.value)
