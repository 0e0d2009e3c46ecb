"""Acts: what a user would type, and what is asked of the objects."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.controllers.world import NAMESPACES, PROMOTIONS
from kargo_py.demo.acts import Act, Annotate, Create, Hang, Look, Path, Ref, Wait, at, typed
from kargo_py.demo.story import scenes
from kargo_py.kube.resources import Key

DEV = Ref(PROMOTIONS, Key("shop", "dev.1"))
OBJ = {"metadata": {"name": "dev.1"}, "status": {"phase": "Running", "steps": [{"message": "waits"}], "none": None}}


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (Create("dev-1.yaml", []), "kubectl create -f dev-1.yaml"),
        (
            Annotate(DEV, {"kargo.akuity.io/abort": "terminate"}),
            "kubectl annotate promotion/dev.1 -n shop kargo.akuity.io/abort=terminate",
        ),
        (
            Wait(DEV, ("status", "phase"), "Failed"),
            "kubectl wait promotion/dev.1 -n shop --for=jsonpath='{.status.phase}'=Failed --timeout=20s",
        ),
        (
            Wait(DEV, ("status", "a", 0, "b"), "it's so", seconds=3),
            """kubectl wait promotion/dev.1 -n shop --for=jsonpath='{.status.a[0].b}'='it'"'"'s so' --timeout=3s""",
        ),
        (
            Wait(Ref(NAMESPACES, Key("", "shop")), ("status",), seconds=3),
            "kubectl wait namespace/shop --for=jsonpath='{.status}' --timeout=3s",
        ),
        (
            Look(DEV, ("status", "message"), []),
            "kubectl get promotion/dev.1 -n shop -o jsonpath='{.status.message}'",
        ),
    ],
    ids=["create", "annotate", "wait", "wait for a sentence", "wait for anything", "look"],
)
def test_commands(act: Any, expected: str) -> None:
    """Each act is the command that a user would type, quoted as kubectl's manual quotes."""
    assert typed(act.command) == expected


def commanded(acts: list[Act]) -> list[list[str]]:
    return [act.command for act in acts if not isinstance(act, Hang)]


def test_a_shell_reads_what_is_meant() -> None:
    """Whatever stands in the story, a shell splits it into the words of the command."""
    commands = commanded([act for scene in scenes() for act in scene.acts])

    assert commands
    assert [shlex.split(typed(command)) for command in commands] == commands


@given(
    st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"])), st.text("abc.{}'\" =$", min_size=1)
)
def test_a_shell_reads_any_value(value: str, name: str) -> None:
    """Also where values and names have quotes, spaces and signs of the shell in them."""
    command = Wait(Ref(PROMOTIONS, Key("shop", name)), ("status", "phase"), value).command

    assert shlex.split(typed(command)) == command


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("status", "phase"), "Running"),
        (("status", "steps", 0, "message"), "waits"),
        (("status", "steps", 1, "message"), None),
        (("status", "steps", "message"), None),
        (("status", 0), None),
        (("status", "none", "x"), None),
        (("spec", "stage"), None),
    ],
)
def test_at(path: Path, expected: str | None) -> None:
    """What stands at a path, and nothing where the object is not like that."""
    assert at(OBJ, path) == expected


@pytest.mark.parametrize(
    ("wait", "met", "vain"),
    [
        (Wait(DEV, ("status", "phase"), "Running"), True, False),
        (Wait(DEV, ("status", "phase"), "Failed"), False, False),
        (Wait(DEV, ("status", "phase"), "Failed", ["Running"]), False, True),
        (Wait(DEV, ("status", "phase")), True, False),
        (Wait(DEV, ("status", "other")), False, False),
        (Wait(DEV, ("status", "none")), False, False),
    ],
    ids=["there", "another", "in vain", "anything", "nothing", "null"],
)
def test_wait(wait: Wait, met: bool, vain: bool) -> None:
    """A value is waited for until it stands there, or another that excludes it."""
    assert (wait.is_met(OBJ), wait.is_vain(OBJ)) == (met, vain)
    assert (wait.is_met(None), wait.is_vain(None)) == (False, False)


def test_look() -> None:
    """What is missing in a text is named."""
    look = Look(DEV, ("status", "phase"), ["Run", "Fail"])

    assert look.missing(OBJ) == ["Fail"]
    assert look.missing(None) == ["Run", "Fail"]
