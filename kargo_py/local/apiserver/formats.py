"""The string formats that CustomResourceDefinitions may name; the API server ignores all others.

Names are compared without hyphens: ``date-time`` is ``datetime``. Sources: apiextensions-apiserver
``pkg/apiserver/validation/formats.go``, kube-openapi ``pkg/validation/strfmt``.
"""

from __future__ import annotations

import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from kargo_py.local.apiserver.gotime import DAY

Check = Callable[[str], bool]


def check_of(name: str) -> Check | None:
    """The check of the format *name*; None if the API server does not know it."""
    return _CHECKS.get(name.replace("-", ""))


def is_recognized(name: str) -> bool:
    """Whether a definition may use the format *name* without a warning: not yet where clients of 1.33 are served."""
    return name not in {"k8s-short-name", "k8s-long-name"} and check_of(name) is not None


def go_duration(text: str) -> float | None:
    """Seconds of a duration as Go writes it (``1h30m``); None if it is not one."""
    found = re.fullmatch(r"([+-]?)(0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", text, re.ASCII)
    if not found:
        return None
    total = sum(float(number) * _SECONDS[unit] for number, unit in _GO_PART.findall(found[2]))
    return -total if found[1] == "-" else total


_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SCALA_PART: Final = re.compile(r"\d+\s*([A-Za-zµ]+)", re.ASCII)
_SCALA_UNIT: Final = re.compile(
    r"ns|nano.*|us|µs|micro.*|ms|milli.*|s|sec.*|m|min.*|h|hr|hour.*|d|day.*|w|wk|week.*", re.IGNORECASE
)


def _regex(pattern: str) -> Check:
    matches = re.compile(pattern, re.ASCII).fullmatch
    return lambda text: matches(text) is not None


_is_common_date: Final = re.compile(DAY, re.ASCII).fullmatch


def _date(text: str) -> bool:
    if _is_common_date(text):
        return True
    try:
        datetime.strptime(text, "%Y-%m-%d")  # noqa: DTZ007 a day, no moment
    except ValueError:
        return False
    return len(text) == len("2006-01-02")


_time_parts: Final = re.compile(r"(\d{2}):(\d{2}):(\d{2})(.\d+)?(z|([+-]\d{2}:\d{2}))", re.ASCII).fullmatch


def _datetime(text: str) -> bool:
    day, found, moment = text.lower().partition("t")
    if not found or not _date(day):
        return False
    parts = _time_parts(moment)
    return parts is not None and parts[1] <= "23" and parts[2] <= "59" and parts[3] <= "59"


def _duration(text: str) -> bool:
    if go_duration(text) is not None:
        return True
    return any(_SCALA_UNIT.fullmatch(unit) for unit in _SCALA_PART.findall(text))


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(re.sub(r"(^|\.)0+(?=\d)", r"\1", text) if "." in text else text)
    except ValueError:
        return None


def _ipv4(text: str) -> bool:
    return "." in text and "%" not in text and _ip(text) is not None


def _ipv6(text: str) -> bool:
    return ":" in text and "%" not in text and _ip(text) is not None


def _cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    parsed = _ip(address)
    if parsed is None or not slash or not re.fullmatch(r"\d{1,3}", bits, re.ASCII):
        return False
    return int(bits) <= parsed.max_prefixlen


def _uri(text: str) -> bool:
    if not text or re.search(r"[\x00-\x1f\x7f]|%(?![0-9a-fA-F]{2})", text):
        return False
    if text == "*":
        return True
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text)
    if text.startswith(":") or not (text.startswith("/") or scheme):
        return False
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 raises ValueError for a port that is none
    except ValueError:
        return False
    return " " not in parts.netloc


def _email(text: str) -> bool:
    address = (
        found[1] if (found := re.fullmatch(r"\s*(?:[^<>@,;]*|\"[^\"]*\")\s*<([^<>]*)>\s*", text)) else text.strip()
    )
    atom = r"[^\s()<>\[\]:;@\\,.\"]+"
    return re.fullmatch(rf"(?:{atom}(?:\.{atom})*|\"[^\"]*\")@(?:{atom}(?:\.{atom})*|\[[^\]]*\])", address) is not None


def _hostname(text: str) -> bool:
    """As the pattern in strfmt: labels of letters, digits, symbols; the last has letters only, unless it is alone."""
    if not text or len(text.encode()) > 255:
        return False
    labels = text.split(".")
    if any(not label or len(label.encode()) > 63 for label in labels):
        return False
    if any(label[0] == "-" or label[-1] == "-" or not all(map(_hostname_char, label)) for label in labels):
        return False
    return len(labels) == 1 or (len(labels[-1]) >= 2 and labels[-1].isalpha())


def _hostname_char(char: str) -> bool:
    return char == "-" or (char.isalnum() if char.isascii() else char.isalpha() or not char.isalnum())


def _base64(text: str) -> bool:
    if not text or len(text) % 4:
        return False
    try:
        binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        return False
    return True


def _luhn(text: str) -> bool:
    digits = re.sub(r"\D", "", text, flags=re.ASCII)
    if not _CARD(digits):
        return False
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


_CARD: Final = _regex(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|(222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"
    r"|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|(?:2131|1800|35\d{3})\d{11}|6[27]\d{14}"
)


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII):
        return False
    return sum((at + 1) * (10 if digit == "X" else int(digit)) for at, digit in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"\d{13}", digits, re.ASCII):
        return False
    return sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10 == 0


_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_short_name: Final = _regex(_LABEL)


def _long_name(text: str) -> bool:
    return len(text) <= 253 and all(map(_short_name, text.split(".")))


_CHECKS: Final[dict[str, Check]] = {
    "bsonobjectid": _regex(r"[0-9a-fA-F]{24}"),
    "uri": _uri,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "cidr": _cidr,
    "mac": _regex(
        r"(?:[0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\1){4}(?:(?:[0-9a-fA-F]{2}\1){2}|(?:[0-9a-fA-F]{2}\1){14})?[0-9a-fA-F]{2}"
        r"|(?:[0-9a-fA-F]{4}\.){2}(?:[0-9a-fA-F]{4}\.|(?:[0-9a-fA-F]{4}\.){7})?[0-9a-fA-F]{4}"
    ),
    "uuid": _regex(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "uuid3": _regex(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "uuid4": _regex(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}"),
    "uuid5": _regex(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}"),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _luhn,
    "ssn": _regex(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _regex(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _regex(
        r"rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,"
        r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)"
    ),
    "byte": _base64,
    "password": lambda _: True,
    "date": _date,
    "duration": _duration,
    "datetime": _datetime,
    "k8sshortname": lambda text: len(text) <= 63 and _short_name(text),
    "k8slongname": _long_name,
}
