"""Parsing Applications out of API answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kargo_py.argocd.application import ApplicationCodec, info_value, initiator
from kargo_py.kube.client import EventType
from kargo_py.kube.errors import DecodeError, Gone
from kargo_py.kube.resources import Key

JsonObject = dict[str, Any]
GOOD: JsonObject = {"metadata": {"name": "a", "namespace": "argocd", "uid": "u", "resourceVersion": "3"}, "spec": {}}
BAD: JsonObject = {
    "metadata": {"name": "b", "namespace": "argocd", "uid": "v", "resourceVersion": "4"},
    "status": {"history": "none"},
}


def encode(value: object) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)


def test_an_unreadable_application_is_kept_with_the_reason() -> None:
    """One Application that does not fit the types costs neither itself nor the others."""
    page = ApplicationCodec().page(encode({"metadata": {"resourceVersion": "9"}, "items": [GOOD, BAD]}))

    good, bad = page.items
    assert (page.resource_version, page.continue_token) == ("9", "")
    assert good.unreadable == ""
    assert (Key("argocd", "b"), "v") == (bad.key, bad.metadata.uid)
    assert "status.history" in bad.unreadable


def test_events() -> None:
    """A watch line becomes an event; a bookmark carries a version only; an error is raised as what it is."""
    codec = ApplicationCodec()

    changed = codec.event(encode({"type": "MODIFIED", "object": GOOD}))
    bookmark = codec.event(encode({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}))

    assert (changed.type, changed.resource_version) == (EventType.MODIFIED, "3")
    assert (bookmark.type, bookmark.resource_version, bookmark.object) == (EventType.BOOKMARK, "5", None)
    with pytest.raises(Gone):
        codec.event(encode({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}))


@pytest.mark.parametrize("line", [b"{", b"[]", encode({"type": "NEW", "object": GOOD}), b'{"type": "ADDED"}'])
def test_what_is_no_event(line: bytes) -> None:
    """What cannot be a watch line is a DecodeError."""
    with pytest.raises(DecodeError):
        ApplicationCodec().event(line)


def test_only_failed_rows_are_kept() -> None:
    """Of the results of a sync only those that failed are kept, and few."""
    rows = [{"kind": "ConfigMap", "name": f"c{i}", "status": "Synced"} for i in range(100)]
    rows += [{"kind": "Job", "name": f"j{i}", "hookPhase": "Failed"} for i in range(20)]
    state = {"operation": {}, "phase": "Failed", "startedAt": "t", "syncResult": {"revision": "r", "resources": rows}}

    app = ApplicationCodec().object(encode({**GOOD, "status": {"operationState": state}}))

    assert app.status.operation_state is not None
    assert app.status.operation_state.sync_result is not None
    kept = app.status.operation_state.sync_result.resources
    assert [f"j{i}" for i in range(10)] == [row.name for row in kept]


@pytest.mark.parametrize(
    ("operation", "who"),
    [
        ({"initiatedBy": {"username": "alice"}}, "alice"),
        ({"initiatedBy": {"automated": True}}, "Argo CD's auto-sync"),
        ({"initiatedBy": None}, "somebody unnamed"),
        ({"initiatedBy": {"username": 7}}, "somebody unnamed"),
        (None, "somebody unnamed"),
    ],
)
def test_initiator(operation: JsonObject | None, who: str) -> None:
    """Whoever started an operation has a name in messages."""
    assert who == initiator(operation)


@pytest.mark.parametrize("info", [None, "x", [7], [{"name": "n"}], [{"name": "n", "value": 7}], [{"value": "v"}]])
def test_malformed_info(info: object) -> None:
    """Info entries of any shape are looked through without harm."""
    assert info_value({"info": info}, "n") is None


def test_nested_too_deeply() -> None:
    """An Application that nobody can parse is kept by its name, in lists and in events."""
    deep = b'{"metadata":{"name":"a \\"b","namespace":"n","uid":"u","resourceVersion":"7"},"spec":{"source":{"x":'
    deep += b"[" * 5000 + b"]" * 5000 + b"}}}"
    codec = ApplicationCodec()

    page = codec.page(b'{"metadata":{"resourceVersion":"9"},"items":[' + encode(GOOD) + b"," + deep + b"]}")
    event = codec.event(b'{"type":"ADDED","object":' + deep + b"}")

    assert [(app.metadata.name, bool(app.unreadable)) for app in page.items] == [("a", False), ('a "b', True)]
    assert page.resource_version == "9"
    assert event.object is not None
    assert event.object.metadata.uid == "u"
    assert "recursion" in event.object.unreadable
