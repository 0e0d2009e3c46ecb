"""The request to abort, in the forms in which it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.abort import ABORT_KEY, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.types import Time


@pytest.mark.parametrize(
    ("annotation", "abort"),
    [
        (None, None),
        ("", None),
        ("  ", None),
        ("terminate", Abort()),
        (" terminate\n", Abort()),
        ('{"action":"terminate"}', Abort()),
        ('{"action":"terminate","actor":"email:a@b","controlPlane":false}', Abort("email:a@b")),
        ('{"action":"terminate","actor":"email:a@b","force":true}', Abort("email:a@b", force=True)),
        ('{"action":"terminate","actor":7,"force":"yes"}', Abort()),
    ],
)
def test_read(annotation: str | None, abort: Abort | None) -> None:
    """The word and Kargo's JSON are understood; parts of another type are left out of it."""
    assert abort == read_abort(annotation)


@pytest.mark.parametrize(
    "annotation", ["stop", "Terminate", "{", "[]", "{}", '{"action":"pause"}', "7", "null", "[" * 5000, "x" * 5000]
)
def test_nonsense(annotation: str) -> None:
    """What asks for nothing we know is an error that says what to set instead, and is short."""
    with pytest.raises(AbortError, match="set it to terminate or") as caught:
        read_abort(annotation)

    assert len(str(caught.value)) < 300


@given(st.builds(Abort, st.text(max_size=256), st.booleans(), st.just(Time("2026-11-30T12:00:00Z"))))
def test_latch(abort: Abort) -> None:
    """What is kept is read back, through JSON."""
    assert abort == latched_abort(json.loads(json.dumps({ABORT_KEY: abort.wire(), "step-1": {}})))


@pytest.mark.parametrize(
    ("state", "abort"),
    [
        (None, None),
        ([], None),
        ({"step-1": {}}, None),
        ({ABORT_KEY: None}, Abort()),
        ({ABORT_KEY: {"actor": 7, "since": "yesterday", "force": 1}}, Abort()),
    ],
)
def test_damaged_latch(state: Any, abort: Abort | None) -> None:
    """A request that cannot be read any more is a request all the same."""
    assert abort == latched_abort(state)


def test_by() -> None:
    """Where nobody is named, the controller is."""
    assert (Abort("email:a@b").by, Abort().by) == ("email:a@b", "controller:kargo-py")
