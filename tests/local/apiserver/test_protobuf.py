"""Reading protobuf: bytes of which nobody knows where they come from. The forms themselves: tests/conformance."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.protobuf import MAGIC, Malformed, Unsupported, decode

# As kubectl 1.32 sent it for `kubectl create configmap m --from-literal=a=1`.
CONFIG_MAP = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1b\n\x11\n\x01m\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
    b'\x12\x06\n\x01a\x12\x011\x1a\x00"\x00'
)
# As it sent it for `kubectl auth can-i create widgets.x`.
REVIEW = (
    b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12D\n\x10\n\x00\x12\x00\x1a\x00"
    b'"\x00*\x002\x008\x00B\x00\x12&\n$\n\x07default\x12\x06create\x1a\x00"\x00*\twidgets.x2\x00:\x00\x1a\x08'
    b'\x08\x00\x12\x00\x1a\x00 \x00\x1a\x00"\x00'
)


def test_what_kubectl_sends() -> None:
    """Empty fields, which Go writes, are absent."""
    assert decode(CONFIG_MAP) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": {"a": "1"},
    }
    assert decode(REVIEW)["spec"] == {
        "resourceAttributes": {"namespace": "default", "verb": "create", "resource": "widgets.x"}
    }


@pytest.mark.parametrize("end", range(len(MAGIC), len(CONFIG_MAP) - 4))
def test_cut(end: int) -> None:
    """A message that ends too early is malformed, or is one with less in it (the last four bytes say nothing)."""
    with contextlib.suppress(Malformed, Unsupported):
        assert decode(CONFIG_MAP[:end]) != decode(CONFIG_MAP)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x0b", "proto: illegal wireType 3"),
        (b"\x08\x01", "proto: wrong wireType = 0 for field typeMeta"),
        (b"\xff" * 11, "proto: integer overflow"),
        (b"\x09\x01", "unexpected EOF"),
        (b"\x12\x7f", "unexpected EOF"),
    ],
)
def test_malformed(content: bytes, why: str) -> None:
    """The reason is told."""
    with pytest.raises(Malformed, match=f"^{why}$"):
        decode(MAGIC + content)


def test_unsupported() -> None:
    """A kind that nobody creates so is not guessed at."""
    with pytest.raises(Unsupported):
        decode(CONFIG_MAP.replace(b"ConfigMap", b"Narcissus"))


@given(st.binary(), st.integers(0, len(CONFIG_MAP)))
def test_anything(junk: bytes, at: int) -> None:
    """Any bytes are read or refused, never more than that."""
    with contextlib.suppress(Malformed, Unsupported):
        decode(CONFIG_MAP[:at] + junk + CONFIG_MAP[at:])
