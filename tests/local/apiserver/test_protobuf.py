"""Protobuf bodies. ``kubectl`` itself writes them in the tests against real servers; here are some by hand."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import protobuf
from kargo_py.local.apiserver.coretypes import CONFIG_MAP, EVENT, LEASE, NAMESPACE, SECRET
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.metatypes import DELETE_OPTIONS
from kargo_py.local.apiserver.protobuf import MalformedEnvelope, MalformedMessage


def varint(value: int) -> bytes:
    """A number."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def body(kind: str, message: bytes, version: str = "v1") -> bytes:
    """A whole body."""
    return protobuf.MAGIC + field(1, field(1, version) + field(2, kind)) + field(2, message)


def test_a_config_map() -> None:
    labels = field(11, field(1, "a") + field(2, "b")) + field(11, field(1, "c"))
    metadata = field(1, "x") + labels + field(8, b"") + field(14, "f/g") + field(14, "h/i")
    message = field(1, metadata) + field(2, field(1, "k") + field(2, "v")) + field(3, field(1, "b") + field(2, b"\xff"))
    assert protobuf.decode(body("ConfigMap", message), CONFIG_MAP, api_version="v1", kind="ConfigMap") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "x",
            "labels": {"a": "b", "c": ""},
            "creationTimestamp": None,
            "finalizers": ["f/g", "h/i"],
        },
        "data": {"k": "v"},
        "binaryData": {"b": "/w=="},
    }


def test_numbers_booleans_and_times() -> None:
    moment = field(1, 1_796_000_000) + field(2, 123_456_789)
    spec = field(1, "me") + field(2, 15) + field(4, moment) + field(5, -1)
    found = protobuf.decode(body("Lease", field(2, spec)), LEASE, api_version="v1", kind="Lease")
    assert found["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-11-30T00:53:20.123456Z",
        "leaseTransitions": -1,
    }
    secret = protobuf.decode(body("Secret", field(5, 1)), SECRET, api_version="v1", kind="Secret")
    assert secret["immutable"] is True


def test_managed_fields_and_fields_that_are_not_known() -> None:
    entry = field(1, "m") + field(4, field(1, 1_796_000_000)) + field(7, field(1, b'{"f:a":{}}')) + field(99, "new")
    message = (
        field(1, field(17, entry)) + field(50, 7) + varint(51 << 3 | 1) + bytes(8) + varint(52 << 3 | 5) + bytes(4)
    )
    found = protobuf.decode(body("Namespace", message), NAMESPACE, api_version="v1", kind="Namespace")
    time = "2026-11-30T00:53:20Z"
    assert found["metadata"]["managedFields"] == [{"manager": "m", "time": time, "fieldsV1": {"f:a": {}}}]


def test_options_of_a_deletion() -> None:
    message = field(1, 0) + field(4, "Orphan") + field(5, "All")
    found = protobuf.decode(body("DeleteOptions", message), DELETE_OPTIONS, api_version="v1", kind="DeleteOptions")
    assert found["gracePeriodSeconds"] == 0
    assert (found["propagationPolicy"], found["dryRun"]) == ("Orphan", ["All"])


def test_an_object_without_a_kind_is_of_the_one_that_is_expected() -> None:
    raw = protobuf.MAGIC + field(2, field(3, "why"))
    found = protobuf.decode(raw, EVENT, api_version="v1", kind="Event")
    assert found == {"apiVersion": "v1", "kind": "Event", "reason": "why"}


def test_an_object_of_another_kind_is_not_read() -> None:
    found = protobuf.decode(body("Secret", b"\xff"), CONFIG_MAP, api_version="v1", kind="ConfigMap")
    assert found == {"apiVersion": "v1", "kind": "Secret"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty data"),
        (b"{}", "expected prefix [107 56 115 0]"),
        (b"k8s\x00", "empty body"),
        (b"k8s\x00\xff\xff", "unexpected EOF"),
        (b"k8s\x00\x0a\x05", "unexpected EOF"),
        (b"k8s\x00" + b"\xff" * 11, "integer overflow"),
        (b"k8s\x00\x00", "illegal tag 0"),
        (b"k8s\x00\x0b", "illegal wireType 3"),
    ],
)
def test_what_is_no_body(raw: bytes, words: str) -> None:
    with pytest.raises(MalformedEnvelope) as caught:
        protobuf.decode(raw, CONFIG_MAP, api_version="v1", kind="ConfigMap")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xff",
        b"\x0a\x04\x0a\x01x\xff",
        field(1, 5),
        field(1, field(7, "text")),
        field(1, field(17, field(7, field(1, "{")))),
    ],
    ids=["cut", "cut within", "number for a message", "text for a number", "no JSON"],
)
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        protobuf.decode(body("ConfigMap", message), CONFIG_MAP, api_version="v1", kind="ConfigMap")


def test_types_whose_numbers_are_not_known() -> None:
    assert protobuf.supports(CONFIG_MAP)
    assert not protobuf.supports(CUSTOM_RESOURCE_DEFINITION)
    assert not protobuf.supports(None)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_an_object_or_an_error(data: bytes, inner: bool) -> None:
    raw = body("Event", data) if inner else protobuf.MAGIC + data
    with contextlib.suppress(MalformedEnvelope, MalformedMessage):
        assert "kind" in protobuf.decode(raw, EVENT, api_version="v1", kind="Event")
