"""What may be a name: the rules of Kubernetes for names of objects, labels, annotations and keys, and what it says.

Each rule gives a list of complaints, none for a good name. Source: k8s.io/apimachinery/pkg/util/validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

NameRule: TypeAlias = Callable[[str, bool], list[str]]
"""Complaints about a name; the second argument tells that it is a prefix (``generateName``)."""

LABEL_LENGTH: Final = 63
SUBDOMAIN_LENGTH: Final = 253

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_QUALIFIED})?"
_KEY: Final = "[-._a-zA-Z0-9]+"

_is_label = re.compile(_LABEL).fullmatch
_is_dns1035 = re.compile(_DNS1035).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_qualified = re.compile(_QUALIFIED).fullmatch
_is_key = re.compile(_KEY).fullmatch


def _pattern_complaint(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_COMPLAINT: Final = _pattern_complaint(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
# The real server's, with its two spaces.
_DNS1035_COMPLAINT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    f"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_DNS1035}')"
)
_SUBDOMAIN_COMPLAINT: Final = _pattern_complaint(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_QUALIFIED_COMPLAINT: Final = _pattern_complaint(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_COMPLAINT: Final = _pattern_complaint(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_KEY_COMPLAINT: Final = _pattern_complaint(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def size(text: str) -> int:
    """Length in bytes, which is what Kubernetes limits."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if size(text) > limit else []


def label(text: str) -> list[str]:
    """A DNS label (RFC 1123)."""
    complaints = _too_long(text, LABEL_LENGTH)
    if not _is_label(text):
        dotted = _is_subdomain(text)
        complaints.append("must not contain dots" if dotted else _LABEL_COMPLAINT)
    return complaints


def dns1035_label(text: str) -> list[str]:
    """A DNS label that begins with a letter (RFC 1035)."""
    complaints = _too_long(text, LABEL_LENGTH)
    if not _is_dns1035(text):
        complaints.append(_DNS1035_COMPLAINT)
    return complaints


def subdomain(text: str) -> list[str]:
    """A DNS subdomain (RFC 1123)."""
    complaints = _too_long(text, SUBDOMAIN_LENGTH)
    if not _is_subdomain(text):
        complaints.append(_SUBDOMAIN_COMPLAINT)
    return complaints


def qualified(text: str) -> list[str]:
    """A name with an optional DNS prefix: ``app``, ``example.com/app``."""
    if len(text) <= LABEL_LENGTH and _is_qualified(text):
        return []
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        more = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_QUALIFIED_COMPLAINT} {more}"]
    complaints: list[str] = []
    if slash:
        wrong = subdomain(prefix) if prefix else ["must be non-empty"]
        complaints += [f"prefix part {complaint}" for complaint in wrong]
    if not name:
        complaints.append("name part must be non-empty")
    complaints += [f"name part {complaint}" for complaint in _too_long(name, LABEL_LENGTH)]
    if not _is_qualified(name):
        complaints.append(f"name part {_QUALIFIED_COMPLAINT}")
    return complaints


def label_value(text: str) -> list[str]:
    """The value of a label."""
    complaints = _too_long(text, LABEL_LENGTH)
    if text and not _is_qualified(text):
        complaints.append(_VALUE_COMPLAINT)
    return complaints


def data_key(text: str) -> list[str]:
    """A key in a ConfigMap or a Secret."""
    complaints = _too_long(text, SUBDOMAIN_LENGTH)
    if not _is_key(text):
        complaints.append(_KEY_COMPLAINT)
    if text in {".", ".."}:
        complaints.append(f"must not be '{text}'")
    elif text.startswith(".."):
        complaints.append("must not start with '..'")
    return complaints


def _as_prefix(text: str) -> str:
    # Kubernetes takes two characters away and puts one back, which is what decides about "a.-".
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def dns_subdomain(name: str, prefix: bool) -> list[str]:
    """Rule for most kinds."""
    return subdomain(_as_prefix(name) if prefix else name)


def dns_label(name: str, prefix: bool) -> list[str]:
    """Rule for Namespaces."""
    return label(_as_prefix(name) if prefix else name)


def path_segment(name: str, prefix: bool) -> list[str]:
    """Rule for what must only fit into a URL: Events, and every kind beside its own rule."""
    if not prefix and name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{illegal}'" for illegal in "/%" if illegal in name]
