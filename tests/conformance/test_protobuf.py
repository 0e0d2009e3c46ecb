"""The form that kubectl uses where it knows a kind: sent in protobuf, answered in JSON, as it says that it may be."""

from __future__ import annotations

import pytest

from tests.conformance.asking import NS, Asked, bad, case, outcome, post
from tests.conformance.definitions import maps
from tests.conformance.servers import Server

PROTOBUF = "application/vnd.kubernetes.protobuf"


def field(number: int, content: bytes) -> bytes:
    """Encode a field that has a length (below 128)."""
    return bytes([number << 3 | 2, len(content)]) + content


def message(kind: str, content: bytes, api_version: str = "v1") -> bytes:
    """Encode an object in the envelope that Kubernetes puts around it."""
    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, type_meta) + field(2, content)


MAPS = maps(NS)
NAMED = field(1, field(1, b"q"))
MALFORMED = [
    case(
        "no magic",
        post(MAPS, b"x", PROTOBUF),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): provided data does "
            "not appear to be a protobuf message, expected prefix [107 56 115 0] (78)"
        ),
    ),
    case(
        "nothing more than magic",
        post(MAPS, b"k8s\x00", PROTOBUF),
        bad("the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)"),
    ),
    case(
        "a broken envelope",
        post(MAPS, b"k8s\x00x", PROTOBUF),
        bad("the object provided is unrecognized (must be of type ConfigMap): unexpected EOF (6b38730078)"),
    ),
    case(
        "an object that is cut",
        post(MAPS, message("ConfigMap", NAMED[:-1]), PROTOBUF),
        bad('ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF'),
    ),
    case(
        "a length beyond the end",
        post(MAPS, message("ConfigMap", b"\x0a\xff"), PROTOBUF),
        bad('ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF'),
    ),
    case(
        "another kind",
        post(MAPS, message("Secret", NAMED), PROTOBUF),
        bad(
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to '
            "(core.ConfigMap): unknown conversion"
        ),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), MALFORMED)
def test_malformed(server: Server, namespace: str, asked: Asked, expected: object) -> None:
    """What cannot be read."""
    assert outcome(asked.of(server, namespace)) == expected


def test_read(server: Server, namespace: str) -> None:
    """Every sort of field arrives."""
    entry = field(1, b"a") + field(2, b"b")
    metadata = field(1, b"m") + field(11, entry) + field(12, entry) + field(14, b"example.com/x")
    owner = field(1, b"Other") + field(3, b"o") + field(4, b"1") + field(5, b"other.example.com/v1") + b"\x30\x01"
    content = (
        field(1, metadata + field(13, owner)) + field(2, entry) + field(3, field(1, b"bin") + field(2, b"\xff\x00"))
    )
    made = server.send("POST", maps(namespace), message("ConfigMap", content + b"\x20\x00"), as_=PROTOBUF).ok()

    server.patch(maps(namespace, "m"), {"metadata": {"finalizers": None}}).ok()
    assert (made["data"], made["binaryData"], made["immutable"]) == ({"a": "b"}, {"bin": "/wA="}, False)
    told = made["metadata"]
    assert (told["labels"], told["annotations"], told["finalizers"]) == ({"a": "b"}, {"a": "b"}, ["example.com/x"])
    assert told["ownerReferences"] == [
        {"apiVersion": "other.example.com/v1", "kind": "Other", "name": "o", "uid": "1", "controller": True}
    ]
