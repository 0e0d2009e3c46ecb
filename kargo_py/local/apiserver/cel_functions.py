"""The functions of CEL that Kubernetes adds and the CEL library does not have.

Values of types of their own (quantities, URLs, addresses) are maps here: that is all the library can carry.
Source: k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kargo_py.local.apiserver import formats, gotext, regex
from kargo_py.local.apiserver.cel_syntax import FIRST, FLAT, ITEMS, SELECT, SIZE
from kargo_py.local.apiserver.light_cel import add_stdlib_to_context, cel
from kargo_py.local.apiserver.wire import JsonObject

Function = Callable[..., Any]

# The library warns of each error that a function raises, which is how these functions refuse an argument.
logging.getLogger("cel").addFilter(lambda record: not record.getMessage().startswith("Python function"))

_SUFFIXES: Final = {
    **{suffix: Decimal(1024) ** (power + 1) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{suffix: Decimal(1000) ** (power + 1) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"))},
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
}
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3})?", re.ASCII)


def functions() -> dict[str, Function]:
    """All of them, and those of the library's own extension, by the name that an expression calls them by."""
    return dict(_FUNCTIONS)


def quantity_of(text: str) -> Decimal | None:
    """The number that a resource quantity means."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        return None
    suffix = found[2] or ""
    try:
        if suffix[:1] in {"e", "E"} and len(suffix) > 1 and suffix != "Ei":
            return Decimal(found[1]).scaleb(int(suffix[1:]))
        return Decimal(found[1]) * _SUFFIXES[suffix]
    except InvalidOperation:
        return None


# Lists


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _sum(items: list[Any]) -> Any:
    return sum(items[1:], items[0]) if items else 0


def _extreme(pick: Callable[[list[Any]], Any]) -> Function:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{pick.__name__} called on empty list")
        return pick(items)

    return chosen


def _index_of(items: str | list[Any], item: Any, start: int = 0) -> int:
    if isinstance(items, str):
        return items.find(item, start)
    return next((at for at, other in enumerate(items) if other == item), -1)


def _last_index_of(items: str | list[Any], item: Any, end: int | None = None) -> int:
    if isinstance(items, str):
        return items.rfind(item) if end is None else items.rfind(item, 0, end + len(item))
    return next((at for at in range(len(items) - 1, -1, -1) if items[at] == item), -1)


def _includes(items: list[Any], other: list[Any]) -> bool:
    return all(item in items for item in other)


# Regular expressions


def _find(text: str, pattern: str) -> str:
    return next(iter(regex.compiled(pattern).find(text, 1)), "")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return regex.compiled(pattern).find(text, limit)


# URLs


def _url(text: str) -> JsonObject:
    if not _is_url(text):
        why = "invalid URI for request" if text else "empty url"
        raise ValueError(f"URL parse error during conversion from string: parse {gotext.quoted(text)}: {why}")
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    return {
        "@url": text,
        "scheme": parts.scheme,
        "host": host,
        "hostname": (parts.hostname or "") if host else "",
        "port": "" if parts.port is None else str(parts.port),
        "path": parts.path,
        "query": parse_qs(parts.query, keep_blank_values=True),
    }


def _is_url(text: str) -> bool:
    check = formats.check_of("uri")
    return check is not None and check(text)


def _part(name: str) -> Function:
    def part(url: JsonObject) -> Any:
        return url[name]

    return part


# Quantities


def _quantity(text: str) -> JsonObject:
    number = quantity_of(text)
    if number is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return {"@quantity": str(number.normalize())}


def _number(quantity: JsonObject) -> Decimal:
    return Decimal(quantity["@quantity"])


def _is_integer(quantity: JsonObject) -> bool:
    number = _number(quantity)
    return number == number.to_integral_value() and abs(number) < 1 << 63


def _as_integer(quantity: JsonObject) -> int:
    if not _is_integer(quantity):
        raise ValueError("cannot convert value to integer")
    return int(_number(quantity))


def _compare(left: JsonObject, right: JsonObject) -> int:
    if "@quantity" in left:
        difference = _number(left) - _number(right)
    else:
        difference = Decimal((left["@semver"] > right["@semver"]) - (left["@semver"] < right["@semver"]))
    return (difference > 0) - (difference < 0)


def _added(left: JsonObject, right: JsonObject | int) -> JsonObject:
    number = Decimal(right) if isinstance(right, int) else _number(right)
    return {"@quantity": str((_number(left) + number).normalize())}


def _subtracted(left: JsonObject, right: JsonObject | int) -> JsonObject:
    number = Decimal(right) if isinstance(right, int) else _number(right)
    return {"@quantity": str((_number(left) - number).normalize())}


def _sign(quantity: JsonObject) -> int:
    number = _number(quantity)
    return (number > 0) - (number < 0)


# Addresses


def _ip(text: str) -> JsonObject:
    if not _is_ip(text):
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {why}')
    return {"@ip": str(ipaddress.ip_address(text))}


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(value: JsonObject) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(value["@ip"])


def _cidr(text: str) -> JsonObject:
    if not _is_cidr(text):
        told = "network address parse error during conversion from string: "
        why = "ParseAddr: unable to parse IP" if "/" in text else "no '/'"
        raise ValueError(f'{told}{told}netip.ParsePrefix("{text}"): {why}')
    network = ipaddress.ip_network(text, strict=False)
    return {"@cidr": str(network), "address": text.partition("/")[0]}


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _contains_ip(network: JsonObject, address: JsonObject | str) -> bool:
    text = address if isinstance(address, str) else address["@ip"]
    return ipaddress.ip_address(text) in ipaddress.ip_network(network["@cidr"])


def _contains_cidr(network: JsonObject, other: JsonObject | str) -> bool:
    outer = ipaddress.ip_network(network["@cidr"])
    inner = ipaddress.ip_network(other if isinstance(other, str) else other["@cidr"], strict=False)
    return outer.version == inner.version and outer.prefixlen <= inner.prefixlen and inner.network_address in outer


# Named formats


_LABEL = formats.check_of("k8s-short-name") or (lambda _: False)
_SUBDOMAIN = formats.check_of("k8s-long-name") or (lambda _: False)


def _format_check(name: str) -> formats.Check | None:
    own: dict[str, formats.Check] = {
        "dns1123Label": _LABEL,
        "dns1123Subdomain": _SUBDOMAIN,
        "dns1035Label": lambda text: _LABEL(text) and not text[:1].isdigit(),
        "labelValue": lambda text: (
            not text or regex.compiled(r"^([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$").search(text)
        ),
    }
    return own.get(name) or formats.check_of(name)


def _named_format(name: str) -> cel.OptionalValue:
    return cel.OptionalValue.none() if _format_check(name) is None else cel.OptionalValue.of({"@format": name})


def _own_format(name: str) -> Function:
    return lambda: {"@format": name}


def _complaints(form: JsonObject, text: str) -> cel.OptionalValue:
    check = _format_check(form["@format"])
    if check is None or check(text):
        return cel.OptionalValue.none()
    return cel.OptionalValue.of([f"{text} is not a valid {form['@format']}"])


# Strings


def _formatted(pattern: str, arguments: list[Any]) -> str:
    left = iter(arguments)

    def piece(found: re.Match[str]) -> str:
        if found[2] == "%":
            return "%"
        value = next(left)
        precision = int(found[1][1:] or 0) if found[1] else 6
        match found[2]:
            case "d":
                return str(int(value))
            case "f":
                return f"{float(value):.{precision}f}"
            case "e":
                return f"{float(value):.{precision}e}"
            case "b":
                return f"{int(value):b}"
            case "o":
                return f"{int(value):o}"
            case "x" | "X":
                text = f"{value:x}" if isinstance(value, int) else str(value).encode().hex()
                return text.upper() if found[2] == "X" else text
            case _:
                return _string(value)

    return re.sub(r"%(\.\d{0,2})?([a-zA-Z%])", piece, pattern)


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return gotext.number(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_string, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_string(item)}' for key, item in sorted(value.items()))}}}"
    return str(value)


def _bool(value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value in {"1", "t", "true", "TRUE", "True"}:
        return True
    if value in {"0", "f", "false", "FALSE", "False"}:
        return False
    raise ValueError("type conversion error from 'string' to 'bool'")


# Optional values


def _selected(value: Any, key: Any) -> cel.OptionalValue:
    if isinstance(value, cel.OptionalValue):
        if not value.has_value():
            return value
        value = value.value()
    if isinstance(value, list):
        return cel.OptionalValue.of(value[key]) if 0 <= key < len(value) else cel.OptionalValue.none()
    return cel.OptionalValue.of(value[key]) if key in value else cel.OptionalValue.none()


def _items(value: cel.OptionalValue) -> list[Any]:
    return [value.value()] if value.has_value() else []


def _first(items: list[Any]) -> cel.OptionalValue:
    return cel.OptionalValue.of(items[0]) if items else cel.OptionalValue.none()


class _Collector:
    """Stands in for a context, to learn which functions the library would put there."""

    def __init__(self) -> None:
        self.found: dict[str, Function] = {}

    def add_function(self, name: str, function: Function) -> None:
        self.found[name] = function


def _all() -> dict[str, Function]:
    collector = _Collector()
    add_stdlib_to_context(collector)
    flags = {
        "isLoopback": "is_loopback",
        "isUnspecified": "is_unspecified",
        "isLinkLocalMulticast": "is_multicast",
        "isLinkLocalUnicast": "is_link_local",
        "isGlobalUnicast": "is_global",
    }
    own: dict[str, Function] = {
        "isSorted": _is_sorted,
        "sum": _sum,
        "min": _extreme(min),
        "max": _extreme(max),
        "indexOf": _index_of,
        "lastIndexOf": _last_index_of,
        "includes": _includes,
        "find": _find,
        "findAll": _find_all,
        "url": _url,
        "isURL": _is_url,
        "getScheme": _part("scheme"),
        "getHost": _part("host"),
        "getHostname": _part("hostname"),
        "getPort": _part("port"),
        "getEscapedPath": _part("path"),
        "getQuery": _part("query"),
        "quantity": _quantity,
        "isQuantity": lambda text: quantity_of(text) is not None,
        "isInteger": _is_integer,
        "asInteger": _as_integer,
        "asApproximateFloat": lambda quantity: float(_number(quantity)),
        "sign": _sign,
        "add": _added,
        "sub": _subtracted,
        "compareTo": _compare,
        "isGreaterThan": lambda left, right: _compare(left, right) > 0,
        "isLessThan": lambda left, right: _compare(left, right) < 0,
        "ip": lambda value: {"@ip": value["address"]} if isinstance(value, dict) else _ip(value),
        "isIP": _is_ip,
        "ip.isCanonical": lambda text: str(ipaddress.ip_address(text)) == text,
        "family": lambda value: _address(value).version,
        **{name: lambda value, flag=flag: bool(getattr(_address(value), flag)) for name, flag in flags.items()},
        "cidr": _cidr,
        "isCIDR": _is_cidr,
        "containsIP": _contains_ip,
        "containsCIDR": _contains_cidr,
        "prefixLength": lambda network: ipaddress.ip_network(network["@cidr"]).prefixlen,
        "masked": lambda network: _cidr(network["@cidr"]),
        "format.named": _named_format,
        **{f"format.{name}": _own_format(name) for name in ("dns1123Label", "dns1123Subdomain", "dns1035Label")},
        "validate": _complaints,
        "format": _formatted,
        "bool": _bool,
        SIZE: len,
        SELECT: _selected,
        ITEMS: _items,
        FIRST: _first,
        FLAT: lambda items: items[0] if items else cel.OptionalValue.none(),
    }
    return {**collector.found, **own}


_FUNCTIONS: Final = _all()
