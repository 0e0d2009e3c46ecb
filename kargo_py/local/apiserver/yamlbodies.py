"""YAML as the real server reads it: YAML 1.1 without dates and sexagesimal numbers, keys as texts, aliases bounded."""

from __future__ import annotations

import base64
import binascii
import json
import re
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, Final

import yaml

from kargo_py.local.apiserver.bodies import Undecodable

MAX_NODES: Final = 200_000  # with aliases counted as often as they stand: a "billion laughs" ends here


class Loader(yaml.CSafeLoader):
    """Resolves plain scalars as go-yaml does."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def load(text: str, max_depth: int) -> tuple[Any, tuple[str, ...]]:
    """The value of the first document in *text*, and what strict decoding says of keys that are given twice."""
    loader = Loader(text)
    try:
        if not loader.check_node():
            return None, ()
        node = loader.get_node()
        assert node is not None  # noqa: S101  (check_node has just said so)
        reader = _Reader(loader, max_depth)
        value = reader.value(node, 0)
    except yaml.YAMLError as error:
        raise Undecodable(_worded(error, text)) from error
    except Unsupported as error:
        raise Undecodable(f"json: unsupported value: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"yaml: {error}") from error
    finally:
        loader.dispose()
    lines = "".join(f"\n  line {line}: key {key} already set in map" for line, key in reader.twice)
    return value, (f"yaml: unmarshal errors:{lines}",) if lines else ()


class Unsupported(Exception):
    """YAML has it, and JSON has not."""


class _Reader:
    def __init__(self, loader: Loader, max_depth: int) -> None:
        self.twice: list[tuple[int, str]] = []
        self._loader = loader
        self._max_depth = max_depth
        self._left = MAX_NODES

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("document contains excessive aliasing")
        if depth > self._max_depth:
            raise ValueError("exceeded max depth")
        if isinstance(node, yaml.MappingNode):
            self._loader.flatten_mapping(node)
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, depth + 1) for child in node.value]
        return scalar(self._loader, node)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, depth + 1)
            name = _key(key)
            if name in made:
                shown = f'"{name}"' if isinstance(key, str) else name
                self.twice.append((key_node.start_mark.line + 1, shown))
            value = made[name] = self.value(value_node, depth + 1)
            if key is None:
                raise Undecodable(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_go_syntax(value)}")
        return made


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return "null"
    raise ValueError(f"invalid map key: {_go_syntax(value)}")


def _go_syntax(value: Any) -> str:
    """A list or an object as Go's ``%#v`` has it."""
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_go_syntax(key)}:{_go_syntax(below)}" for key, below in value.items())
        return f"map[interface {{}}]interface {{}}{{{pairs}}}"
    return json.dumps(value)


def scalar(loader: Loader, node: yaml.Node) -> Any:
    """The value of a scalar as JSON has it. Raises ValueError, Unsupported or yaml.YAMLError."""
    if node.tag == "tag:yaml.org,2002:int":
        return _int(loader, node)
    if node.tag == "tag:yaml.org,2002:float":
        return _float(node.value)
    if node.tag == "tag:yaml.org,2002:bool" and node.value in {*"yYnN"}:
        return node.value in {*"yY"}
    if node.tag == "tag:yaml.org,2002:binary":
        try:
            return base64.b64decode(node.value, validate=True).decode(errors="replace")
        except binascii.Error as error:
            raise ValueError("!!binary value contains invalid base64 data") from error
    if node.tag == "tag:yaml.org,2002:bool" and len(node.value) == 1:
        return node.value in "yY"
    if node.tag in _PLAIN:
        return loader.construct_object(node)
    return node.value


def _int(loader: Loader, node: yaml.Node) -> Any:
    """A number of 64 bits; a larger one in decimal is a float, every other is text."""
    text = str(node.value)
    if len(text) > _MOST_DIGITS:
        return text
    octal = re.match(r"^[-+]?0o", text)
    number = int(text.replace("_", ""), 8) if octal else loader.construct_object(node)
    if -_BIG <= number < _BIG:
        return number
    return _float(text) if _decimal.match(text) else text


_MOST_DIGITS: Final = 1000
_BIG: Final = 1 << 63
_decimal: Final = re.compile(r"^[-+]?[1-9][0-9_]*$")
_alias = re.compile(r"\*([\w-]+)")
_PLAIN: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int"))


def _float(text: str) -> float | int | str:
    number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not isfinite(number) and not re.match(r"^[-+]?\.", text):
        return text
    if not isfinite(number):
        raise Unsupported("NaN" if isnan(number) else f"{'-' if number < 0 else '+'}Inf")
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number


def _worded(error: yaml.YAMLError, text: str) -> str:
    """As go-yaml words it, which tells no line if it is the first, and counts from 0 unless the scanner complains."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    if problem == "found undefined alias" and mark and (name := _alias.match(text.split("\n")[mark.line], mark.column)):
        return f"yaml: unknown anchor '{name[1]}' referenced"
    where = f"line {mark.line + isinstance(error, yaml.scanner.ScannerError)}: " if mark and mark.line else ""
    return f"yaml: {where}{problem}"
