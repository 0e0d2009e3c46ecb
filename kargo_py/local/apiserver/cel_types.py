"""Types in a CEL expression: what the API server refuses at once, as it could never work.

The types of ``self`` are those of the schema. Overloads and messages are cel-go's and Kubernetes'; an expression that
this checker is silent about is none the worse for it, it may still fail when it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kargo_py.local.apiserver import regex
from kargo_py.local.apiserver.cel_names import escaped
from kargo_py.local.apiserver.cel_syntax import Expr
from kargo_py.local.apiserver.nodes import Node, node_of

Type: TypeAlias = Any
"""A name (``int``), or ("list", item), ("map", key, value), ("optional_type", item), ("object", node, name)."""

_SIGNATURES: Final = """
size(string) int; size(bytes) int; size(list(A)) int; size(map(A,B)) int
string.size() int; bytes.size() int; list(A).size() int; map(A,B).size() int
string.contains(string) bool; string.startsWith(string) bool; string.endsWith(string) bool
string.matches(string) bool; matches(string,string) bool
int(int) int; int(uint) int; int(double) int; int(string) int; int(timestamp) int; int(duration) int
uint(uint) uint; uint(int) uint; uint(double) uint; uint(string) uint
double(double) double; double(int) double; double(uint) double; double(string) double
string(string) string; string(bool) string; string(bytes) string; string(double) string; string(duration) string
string(int) string; string(timestamp) string; string(uint) string; string(kubernetes.IP) string
string(kubernetes.CIDR) string
bytes(bytes) bytes; bytes(string) bytes; bool(bool) bool; bool(string) bool
dyn(A) dyn; type(A) type
timestamp(string) timestamp; timestamp(int) timestamp; timestamp(timestamp) timestamp
duration(string) duration; duration(int) duration; duration(duration) duration
timestamp.getFullYear() int; timestamp.getMonth() int; timestamp.getDayOfYear() int; timestamp.getDayOfMonth() int
timestamp.getDate() int; timestamp.getDayOfWeek() int; timestamp.getHours() int; timestamp.getMinutes() int
timestamp.getSeconds() int; timestamp.getMilliseconds() int
timestamp.getFullYear(string) int; timestamp.getMonth(string) int; timestamp.getDayOfYear(string) int
timestamp.getDayOfMonth(string) int; timestamp.getDate(string) int; timestamp.getDayOfWeek(string) int
timestamp.getHours(string) int; timestamp.getMinutes(string) int; timestamp.getSeconds(string) int
timestamp.getMilliseconds(string) int
duration.getHours() int; duration.getMinutes() int; duration.getSeconds() int; duration.getMilliseconds() int
string.charAt(int) string; string.indexOf(string) int; string.indexOf(string,int) int; string.lastIndexOf(string) int
string.lastIndexOf(string,int) int; string.lowerAscii() string; string.upperAscii() string; string.trim() string
string.replace(string,string) string; string.replace(string,string,int) string; string.split(string) list(string)
string.split(string,int) list(string); string.substring(int) string; string.substring(int,int) string
list(string).join() string; list(string).join(string) string; strings.quote(string) string
string.format(list(dyn)) string
list(A).indexOf(A) int; list(A).lastIndexOf(A) int
list(int).isSorted() bool; list(uint).isSorted() bool; list(double).isSorted() bool; list(bool).isSorted() bool
list(string).isSorted() bool; list(timestamp).isSorted() bool; list(duration).isSorted() bool
list(bytes).isSorted() bool
list(int).sum() int; list(uint).sum() uint; list(double).sum() double; list(duration).sum() duration
list(int).min() int; list(uint).min() uint; list(double).min() double; list(bool).min() bool; list(string).min() string
list(timestamp).min() timestamp; list(duration).min() duration; list(bytes).min() bytes
list(int).max() int; list(uint).max() uint; list(double).max() double; list(bool).max() bool; list(string).max() string
list(timestamp).max() timestamp; list(duration).max() duration; list(bytes).max() bytes
string.find(string) string; string.findAll(string) list(string); string.findAll(string,int) list(string)
url(string) kubernetes.URL; isURL(string) bool; kubernetes.URL.getScheme() string; kubernetes.URL.getHost() string
kubernetes.URL.getHostname() string; kubernetes.URL.getPort() string; kubernetes.URL.getEscapedPath() string
kubernetes.URL.getQuery() map(string,list(string))
quantity(string) kubernetes.Quantity; isQuantity(string) bool; sign(kubernetes.Quantity) int
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) bool; kubernetes.Quantity.isLessThan(kubernetes.Quantity) bool
kubernetes.Quantity.compareTo(kubernetes.Quantity) int; kubernetes.Quantity.asApproximateFloat() double
kubernetes.Quantity.asInteger() int; kubernetes.Quantity.isInteger() bool
kubernetes.Quantity.add(kubernetes.Quantity) kubernetes.Quantity; kubernetes.Quantity.add(int) kubernetes.Quantity
kubernetes.Quantity.sub(kubernetes.Quantity) kubernetes.Quantity; kubernetes.Quantity.sub(int) kubernetes.Quantity
ip(string) kubernetes.IP; isIP(string) bool; ip.isCanonical(string) bool; kubernetes.IP.family() int
kubernetes.IP.isUnspecified() bool; kubernetes.IP.isLoopback() bool; kubernetes.IP.isLinkLocalMulticast() bool
kubernetes.IP.isLinkLocalUnicast() bool; kubernetes.IP.isGlobalUnicast() bool
cidr(string) kubernetes.CIDR; isCIDR(string) bool; kubernetes.CIDR.containsIP(string) bool
kubernetes.CIDR.containsIP(kubernetes.IP) bool; kubernetes.CIDR.containsCIDR(string) bool
kubernetes.CIDR.containsCIDR(kubernetes.CIDR) bool; kubernetes.CIDR.ip() kubernetes.IP
kubernetes.CIDR.prefixLength() int; kubernetes.CIDR.masked() kubernetes.CIDR
sets.contains(list(A),list(A)) bool; sets.equivalent(list(A),list(A)) bool; sets.intersects(list(A),list(A)) bool
format.named(string) optional_type(kubernetes.NamedFormat); format.dns1123Label() kubernetes.NamedFormat
format.dns1123Subdomain() kubernetes.NamedFormat; format.dns1035Label() kubernetes.NamedFormat
kubernetes.NamedFormat.validate(string) optional_type(list(string))
optional.of(A) optional_type(A); optional.none() optional_type(dyn); optional.ofNonZeroValue(A) optional_type(A)
optional_type(A).hasValue() bool; optional_type(A).value() A; optional_type(A).orValue(A) A
optional_type(A).or(optional_type(A)) optional_type(A)
!_(bool) bool; -_(int) int; -_(double) double; _?_:_(bool,A,A) A; _==_(A,A) bool; _!=_(A,A) bool
@in(A,list(A)) bool; @in(A,map(A,B)) bool; _[_](list(A),int) A; _[_](map(A,B),A) B
_+_(int,int) int; _+_(uint,uint) uint; _+_(double,double) double; _+_(string,string) string; _+_(bytes,bytes) bytes
_+_(list(A),list(A)) list(A); _+_(timestamp,duration) timestamp; _+_(duration,timestamp) timestamp
_+_(duration,duration) duration
_-_(int,int) int; _-_(uint,uint) uint; _-_(double,double) double; _-_(timestamp,duration) timestamp
_-_(timestamp,timestamp) duration; _-_(duration,duration) duration
_*_(int,int) int; _*_(uint,uint) uint; _*_(double,double) double
_/_(int,int) int; _/_(uint,uint) uint; _/_(double,double) double; _%_(int,int) int; _%_(uint,uint) uint
"""
_ORDERED: Final = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_NUMBERS: Final = ("int", "uint", "double")
_UNEVALUATED: Final = frozenset({"semver", "isSemver"})
"""Functions of Kubernetes that are not here."""
_TYPE_NAMES: Final = frozenset(
    {"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "optional_type"}
)
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})


class Unsupported(Exception):
    """The real API server takes it, this one cannot evaluate it."""


@dataclass(frozen=True, slots=True)
class _Overload:
    receiver: Type | None
    parameters: tuple[Type, ...]
    result: Type


def errors_of(expression: Expr, source: str, variables: Mapping[str, Type]) -> list[str]:
    """What is wrong with the types in *expression*, as cel-go prints it. Raises Unsupported."""
    checker = _Checker(source, variables)
    checker.check(expression)
    return [_placed(source, at, text) for at, text in checker.errors]


def type_of(node: Node, name: str = "selfType", *, resource: bool = False) -> Type | None:
    """The type of values of *node*; None where CEL does not see them."""
    raw = node.raw
    if raw.get("x-kubernetes-int-or-string"):
        return "dyn"
    if resource:
        return ("object", _with_meta(node), name)
    match node.type:
        case "array":
            item = type_of(node.items, f"{name}.@idx", resource=node.items.embedded) if node.items else None
            return None if item is None else ("list", item)
        case "object" if node.additional is not None:
            value = type_of(node.additional, f"{name}.@elem", resource=node.additional.embedded)
            return None if value is None else ("map", "string", value)
        case "object":
            return ("object", node, name)
        case "string":
            return _STRINGS.get(raw.get("format") or "", "string")
    return {"boolean": "bool", "number": "double", "integer": "int"}.get(node.type)


_STRINGS: Final = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}


def _with_meta(node: Node) -> Node:
    text = {"type": "string"}
    meta = {"type": "object", "properties": {"name": text, "generateName": text}}
    found = Node({**node.raw, "type": "object"})
    found.properties = {**node.properties, **node_of({"properties": {"apiVersion": text, "kind": text}}).properties}
    found.properties["metadata"] = node_of(meta)
    return found


def _placed(source: str, at: int, text: str) -> str:
    line = source.count("\n", 0, at)
    column = at - (source.rfind("\n", 0, at) + 1)
    return f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n | {source.split(chr(10))[line]}\n | {'.' * column}^"


class _Checker:
    def __init__(self, source: str, variables: Mapping[str, Type]) -> None:
        self.source = source
        self.variables = dict(variables)
        self.errors: list[tuple[int, str]] = []

    def check(self, expr: Expr) -> Type:
        expr.type = self._type(expr)
        return expr.type

    def _fail(self, at: int, text: str) -> Type:
        self.errors.append((at, text))
        return "error"

    def _type(self, expr: Expr) -> Type:
        match expr.kind:
            case "literal":
                return expr.name
            case "name":
                return self._name(expr)
            case "select":
                return self._select(expr)
            case "index":
                return self._index(expr)
            case "list":
                return ("list", self._joined(expr.args))
            case "map":
                return ("map", self._joined(expr.args[::2]), self._joined(expr.args[1::2]))
            case "call":
                return self._call(expr)
        raise Unsupported("messages")

    def _name(self, expr: Expr) -> Type:
        if expr.name in self.variables:
            return self.variables[expr.name]
        if expr.name in _TYPE_NAMES:
            return "type"
        return self._fail(expr.at, f"undeclared reference to '{expr.name}' (in container '')")

    def _joined(self, items: Sequence[Expr]) -> Type:
        found: Type = None
        for item in items:
            kind = self.check(item)
            if found is None or found in {"error", "dyn"}:
                found = kind
            elif not _assignable(found, kind):
                self._fail(item.at, f"expected type '{shown(found)}' but found '{shown(kind)}'")
        return found or "dyn"

    def _select(self, expr: Expr, at: int | None = None) -> Type:
        at = expr.at if at is None else at
        target = expr.target
        if target is None or _dotted(expr) in _TYPE_PATHS:
            return "type"
        outer = self.check(target)
        wrapped = expr.optional or outer[0] == "optional_type"
        inner = outer[1] if outer[0] == "optional_type" else outer
        found = self._field(inner, expr.name, at)
        return ("optional_type", found) if wrapped and found != "error" else found

    def _field(self, outer: Type, name: str, at: int) -> Type:
        if outer in {"dyn", "error"}:
            return "dyn"
        if outer[0] == "map":
            return outer[2]
        if outer[0] == "object":
            for key, child in outer[1].properties.items():
                if name in {escaped(key), key if not re.search("__|[-./]", key) else None}:
                    found = type_of(child, f"{outer[2]}.{name}", resource=child.embedded)
                    if found is not None:
                        return found
            return self._fail(at, f"undefined field '{name}'")
        return self._fail(at, f"type '{shown(outer)}' does not support field selection")

    def _index(self, expr: Expr) -> Type:
        target = expr.target
        assert target is not None  # noqa: S101 an index has one
        outer = self.check(target)
        key = self.check(expr.args[0])
        wrapped = expr.optional or outer[0] == "optional_type"
        inner = outer[1] if outer[0] == "optional_type" else outer
        found = self._resolve("_[_]", None, [inner, key], expr.at)
        return ("optional_type", found) if wrapped and found != "error" else found

    def _call(self, expr: Expr) -> Type:
        name, args, target = expr.name, expr.args, expr.target
        if name == "has" and target is None and len(args) == 1 and args[0].kind == "select":
            self._select(args[0], expr.at)
            return "bool"
        if target is not None and name in _LOOPS and len(args) in {2, 3} and args[0].kind == "name":
            if len(args) == 3 and name != "map":
                raise Unsupported("loops with two variables")
            return self._loop(expr, target)
        if target is not None and name in {"optMap", "optFlatMap"} and len(args) == 2 and args[0].kind == "name":
            return self._opt_map(expr, target)
        if name in {"transformList", "transformMap", "transformMapEntry"}:
            raise Unsupported(f"the loop {name}")
        if name in {"_&&_", "_||_"}:
            for arg in args:
                kind = self.check(arg)
                if not _assignable("bool", kind):
                    self._fail(arg.at, f"expected type 'bool' but found '{shown(kind)}'")
            return "bool"
        if target is not None and (path := _dotted(target)) and f"{path}.{name}" in _overloads():
            return self._resolve(f"{path}.{name}", None, [self.check(arg) for arg in args], expr.at)
        if name in _UNEVALUATED:
            raise Unsupported(f"the function {name}")
        receiver = None if target is None else self.check(target)
        if name not in _overloads():
            self._fail(expr.at, f"undeclared reference to '{name}' (in container '')")
            for arg in args:
                self.check(arg)
            return "error"
        if receiver == "timestamp" and name.startswith("get") and args:
            raise Unsupported(f"a time zone for {name}")
        kinds: list[Type] = []
        if name == "format" and len(args) == 1 and args[0].kind == "list":  # whose items may be of any types
            for item in args[0].args:
                self.check(item)
            kinds.append(("list", "dyn"))
        else:
            kinds += [self.check(arg) for arg in args]
        found = self._resolve(name, receiver, kinds, expr.at)
        if name == "matches" and args and args[-1].kind == "literal" and found != "error":
            self._check_pattern(args[-1])
        return found

    def _check_pattern(self, expr: Expr) -> None:
        plain = re.fullmatch(r"r(['\"])(.*)\1|(['\"])([^\\]*)\3", expr.text, re.DOTALL)
        if plain:
            try:
                regex.compiled(plain[2] if plain[2] is not None else plain[4])
            except regex.PatternError:
                self._fail(expr.at, "invalid matches argument")

    def _loop(self, expr: Expr, target: Expr) -> Type:
        outer = self.check(target)
        if outer[0] in {"list", "map"}:
            item = outer[1]
        elif outer in {"dyn", "error"}:
            item = "dyn"
        else:
            what = f"expression of type '{shown(outer)}' cannot be range of a comprehension"
            self._fail(target.at, f"{what} (must be list, map, or dynamic)")
            item = "error"
        body = self._within(expr.args[0].name, item, expr.args[1:])
        test, made = body[0], ("list", body[-1])
        match expr.name:
            case "all" | "exists":
                if not _assignable("bool", test):
                    self._fail(expr.args[1].at, f"expected type 'bool' but found '{shown(test)}'")
                return "bool"
            case "exists_one" | "existsOne":
                self._resolve("_?_:_", None, [test, "int", "int"], expr.at)
                return "bool"
            case "filter":
                return self._resolve("_?_:_", None, [test, ("list", item), ("list", item)], expr.at)
        if len(body) > 1:
            self._resolve("_?_:_", None, [test, made, made], expr.at)
        return made

    def _within(self, name: str, kind: Type, body: Sequence[Expr]) -> list[Type]:
        outer = dict(self.variables)
        self.variables[name] = kind
        found = [self.check(expr) for expr in body]
        self.variables = outer
        return found

    def _opt_map(self, expr: Expr, target: Expr) -> Type:
        outer = self.check(target)
        if outer[0] != "optional_type":
            return "dyn"
        found = self._within(expr.args[0].name, outer[1], expr.args[1:])[0]
        return ("optional_type", found) if expr.name == "optMap" else found

    def _resolve(self, name: str, receiver: Type | None, args: list[Type], at: int) -> Type:
        if "error" in args or receiver == "error":
            return "error"
        if name in _COMPARISONS:
            if _comparable(*args):
                return "bool"
            return self._no_overload(name, receiver, args, at)
        results = [
            result for overload in _overloads()[name] if (result := _applied(overload, receiver, args)) is not None
        ]
        if not results:
            return self._no_overload(name, receiver, args, at)
        return results[0] if all(result == results[0] for result in results) else "dyn"

    def _no_overload(self, name: str, receiver: Type | None, args: list[Type], at: int) -> Type:
        given = f"({', '.join(map(shown, args))})"
        given = given if receiver is None else f"{shown(receiver)}.{given}"
        return self._fail(at, f"found no matching overload for '{name}' applied to '{given}'")


_COMPARISONS: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_TYPE_PATHS: Final = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})


def _comparable(left: Type, right: Type) -> bool:
    if "dyn" in {left, right}:
        return (left in _ORDERED or left == "dyn") and (right in _ORDERED or right == "dyn")
    return left in _ORDERED and (left == right or (left in _NUMBERS and right in _NUMBERS))


def _dotted(expr: Expr | None) -> str:
    """A path of names such as ``google.protobuf``; "" for what is none."""
    if expr is None:
        return ""
    if expr.kind == "name":
        return expr.name
    if expr.kind == "select" and not expr.optional and (outer := _dotted(expr.target)):
        return f"{outer}.{expr.name}"
    return ""


def _applied(overload: _Overload, receiver: Type | None, args: Sequence[Type]) -> Type | None:
    """The result type for these arguments; None if they do not fit."""
    if (receiver is None) != (overload.receiver is None) or len(args) != len(overload.parameters):
        return None
    bound: dict[str, Type] = {}
    pairs = [*zip(overload.parameters, args, strict=True)]
    if receiver is not None:
        pairs.insert(0, (overload.receiver, receiver))
    if not all(_fits(parameter, arg, bound) for parameter, arg in pairs):
        return None
    return _filled(overload.result, bound)


def _fits(parameter: Type, arg: Type, bound: dict[str, Type]) -> bool:
    if isinstance(parameter, str) and len(parameter) == 1:
        known = bound.get(parameter)
        if known is None or known == "dyn" or (known == "null" and arg != "null"):
            fits = known is None or _assignable(known, arg)
            bound[parameter] = arg
            return fits
        return _assignable(known, arg)
    if arg in {"dyn", "error"} or parameter == "dyn":
        return True
    if isinstance(parameter, tuple):
        if not isinstance(arg, tuple) or parameter[0] != arg[0]:
            return False
        return all(_fits(one, other, bound) for one, other in zip(parameter[1:], arg[1:], strict=True))
    return bool(parameter == arg)


def _filled(result: Type, bound: dict[str, Type]) -> Type:
    if isinstance(result, tuple):
        return (result[0], *(_filled(part, bound) for part in result[1:]))
    return bound.get(result, "dyn") if len(result) == 1 else result


def _assignable(left: Type, right: Type) -> bool:
    if "dyn" in {left, right} or "error" in {left, right}:
        return True
    if "null" in {left, right}:
        other = right if left == "null" else left
        return other in {"null", "timestamp", "duration"} or other[0] in {"object", "optional_type"} or "." in other
    if isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0]:
        if left[0] == "object":
            return left[1] is right[1] or left[2] == right[2]
        return all(map(_assignable, left[1:], right[1:]))
    return bool(left == right)


def shown(kind: Type) -> str:
    """A type as cel-go writes it."""
    if isinstance(kind, tuple):
        if kind[0] == "object":
            return str(kind[2])
        return f"{kind[0]}({', '.join(map(shown, kind[1:]))})"
    return str(kind)


@lru_cache(maxsize=1)
def _overloads() -> dict[str, list[_Overload]]:
    found: dict[str, list[_Overload]] = {}
    for line in re.split(r"[;\n]", _SIGNATURES):
        if not line.strip():
            continue
        head, _, result = line.strip().rpartition(" ")
        name, receiver, parameters = _signature(head)
        overload = _Overload(
            None if receiver is None else _parsed(receiver),
            tuple(_parsed(parameter) for parameter in parameters),
            _parsed(result),
        )
        found.setdefault(name, []).append(overload)
    for name in _COMPARISONS:
        found[name] = []
    return found


def _signature(head: str) -> tuple[str, str | None, list[str]]:
    """``string.size()``: the function's name, the receiver's type, the parameters' types."""
    start, depth = len(head) - 1, 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            start = at
            break
    inner = _parts(head[start + 1 : -1])
    before, dot, name = head[:start].rpartition(".")
    if not dot or before in {"sets", "optional", "format", "strings", "ip"}:
        return head[:start], None, inner
    return name, before, inner


def _parts(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current] if current else parts


def _parsed(text: str) -> Type:
    name, opened, rest = text.partition("(")
    return (name, *map(_parsed, _parts(rest[:-1]))) if opened else text
