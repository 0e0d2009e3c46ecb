"""JSON to plain objects, and back."""

from __future__ import annotations

import pytest

from kargo_py.kube.client import EventType, Meta
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import DecodeError, Gone
from kargo_py.kube.resources import Key


def test_page() -> None:
    """Items of a list look as if they had been read one by one: with apiVersion and kind, which a server leaves out."""
    page = JSON.page(
        b'{"kind":"ThingList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":"t"},'
        b'"items":[{"metadata":{"name":"a"}},{"kind":"Own","apiVersion":"v2","metadata":{"name":"b"}}]}'
    )

    assert page.items == [
        {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}},
        {"apiVersion": "v2", "kind": "Own", "metadata": {"name": "b"}},
    ]
    assert (page.resource_version, page.continue_token) == ("7", "t")


@pytest.mark.parametrize("items", ["[]", "null"], ids=["empty", "null"])
def test_empty_page(items: str) -> None:
    """Go writes a nil list as null."""
    page = JSON.page(f'{{"kind":"ThingList","apiVersion":"v1","metadata":{{}},"items":{items}}}'.encode())

    assert (page.items, page.resource_version, page.continue_token) == ([], "", "")


def test_events() -> None:
    """A change carries its object, a bookmark only a version, an ERROR line is raised."""
    change = JSON.event(b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"5"}}}')
    bookmark = JSON.event(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}')

    assert (change.type, change.resource_version) == (EventType.MODIFIED, "5")
    assert change.object == {"metadata": {"resourceVersion": "5"}}
    assert (bookmark.type, bookmark.resource_version, bookmark.object) == (EventType.BOOKMARK, "6", None)
    with pytest.raises(Gone, match="too old"):
        JSON.event(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}')


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b'{"a":', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "a JSON list, not an object"),
    ],
    ids=["nothing", "html", "no utf-8", "cut off", "too deep", "a list"],
)
def test_no_object(data: bytes, words: str) -> None:
    """What is no JSON object is a DecodeError, whatever the parser says of it."""
    for parse in (JSON.object, JSON.page, JSON.event):
        with pytest.raises(DecodeError, match=words):
            parse(data)


@pytest.mark.parametrize(
    "data",
    [b'{"items":{"a":1}}', b'{"items":[1]}', b'{"metadata":"x"}'],
    ids=["items no list", "item no object", "metadata no object"],
)
def test_no_page(data: bytes) -> None:
    """A list that is not built like one is refused."""
    with pytest.raises(DecodeError):
        JSON.page(data)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ADDED"}',
        b'{"type":"SING","object":{}}',
        b'{"object":{}}',
        b'{"type":"ADDED","object":{"metadata":[1]}}',
    ],
    ids=["no object", "unknown type", "no type", "metadata no object"],
)
def test_no_event(line: bytes) -> None:
    """A watch line that is not built like one is refused."""
    with pytest.raises(DecodeError):
        JSON.event(line)


def test_meta() -> None:
    """Namespace, name, uid and version; a cluster-scoped object has no namespace."""
    named = {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7"}

    assert JSON.meta({"metadata": named}) == Meta(Key("ns", "a"), "u", "7")
    assert JSON.meta({"metadata": {"name": "a"}}) == Meta(Key("", "a"), "", "")
    for metadata in (None, {}, {"name": ""}, "x"):
        with pytest.raises(DecodeError):
            JSON.meta({"kind": "Thing", "metadata": metadata})


class Text(str):
    """As times and durations are, which keep the text they were read from."""

    __slots__ = ()


def test_encode() -> None:
    """JSON is compact; kinds of str are text; what is no JSON is refused."""
    assert encode({"a": [1, None, "é"], "d": Text("1h")}) == '{"a":[1,null,"é"],"d":"1h"}'.encode()
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        encode({"a": object()})


def test_objects_nested_too_deeply() -> None:
    """An object that nobody can parse is kept by its name, and costs the others nothing."""
    deep = b'{"kind":"Thing","apiVersion":"v1","metadata":{"name":"deep","uid":"u","resourceVersion":"7"},"spec":'
    deep += b"[" * 5000 + b"]" * 5000 + b"}"
    good = b'{"kind":"Thing","apiVersion":"v1","metadata":{"name":"good","resourceVersion":"8"}}'

    page = JSON.page(
        b'{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
        + deep
        + b","
        + good
        + b"]}"
    )
    event = JSON.event(b'{"type":"ADDED","object":' + deep + b"}")

    assert [item["metadata"]["name"] for item in page.items] == ["deep", "good"]
    assert "spec" not in page.items[0]
    assert event.object is not None
    assert JSON.meta(event.object).uid == "u"
    assert JSON.meta(JSON.object(deep)).resource_version == "7"
