"""The rules of a schema that are written in CEL (``x-kubernetes-validations``).

The CEL library evaluates them; around it this module does what Kubernetes does: which rule applies where, what
``oldSelf`` is, how values look from within CEL, and how a failure is told. Source: apiextensions-apiserver
``pkg/apiserver/schema/cel``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from kargo_py.local.apiserver import cel_types, formats
from kargo_py.local.apiserver.cel_functions import Function, functions
from kargo_py.local.apiserver.cel_names import escaped
from kargo_py.local.apiserver.cel_syntax import Unparsed, has_optionals, parse, rewritten
from kargo_py.local.apiserver.checks import Twin, by_key, map_key
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.light_cel import cel
from kargo_py.local.apiserver.nodes import Node
from kargo_py.local.apiserver.wire import JsonObject, encode

MAX_RULE: Final = 16 * 1024
"""Characters of an expression; the parser is recursive."""
MAX_STEPS: Final = 1_000_000
"""How often the innermost part of nested loops may be evaluated."""
_MAX_MESSAGE: Final = 5 * 1024
_MOST_PASSED: Final = 256
_LONGEST_PASSED: Final = 2048
"""Values that passed all rules of a schema, and their size as JSON: most writes leave most values as they were."""
_MACROS: Final = re.compile(r"\.(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_REASONS: Final = {
    "FieldValueForbidden": Cause.FORBIDDEN,
    "FieldValueRequired": Cause.REQUIRED,
    "FieldValueDuplicate": Cause.DUPLICATE,
}
_EXTENSIONS: Final = functions()
SKIPPED: Final = FieldError(
    Cause.INVALID,
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
"""Stands for the rules, which are not evaluated on an object of the wrong shape."""
_BLOCKING: Final = frozenset({Cause.UNSUPPORTED, Cause.REQUIRED, Cause.TOO_LONG, Cause.TOO_MANY, Cause.TYPE})


class ExpressionError(ValueError):
    """An expression that does not compile."""


class EvaluationError(Exception):
    """An expression that failed on a value; the text is in the words of cel-go."""


class Expression:
    """A compiled expression; :func:`compiled` makes one."""

    __slots__ = ("_depth", "_exact", "_optional_old", "_program", "_sizes", "_source", "functions", "variables")

    def __init__(self, source: str, *, optional_old: bool = False) -> None:
        """Raise ExpressionError if *source* is no expression; *optional_old*: ``oldSelf`` may be nothing."""
        if len(source) > MAX_RULE:
            raise ExpressionError(f"the expression is longer than {MAX_RULE} characters")
        self._source = source
        self._exact: Expression | None = None
        self._optional_old = optional_old
        written = source
        if has_optionals(source):
            with suppress(Unparsed, RecursionError):
                written = rewritten(parse(source), optional_old=optional_old)
        try:
            self._program = cel.compile(written)
        except (ValueError, RecursionError) as error:
            raise ExpressionError(_parse_error(str(error))) from error
        references = self._program.references()
        self.variables = frozenset(references["variables"])
        self.functions = frozenset(references["functions"])
        self._sizes = "size" in self.functions
        self._depth = nesting(source)

    def _counting_characters(self) -> Expression:
        """The same expression with a ``size`` that counts characters."""
        if self._exact is None:
            self._exact = self
            with suppress(Unparsed, RecursionError, ExpressionError):
                self._exact = Expression(
                    rewritten(parse(self._source), optional_old=self._optional_old, sizes=True),
                    optional_old=self._optional_old,
                )
        return self._exact

    def evaluate(self, scope: Scope) -> Any:
        """The value of the expression; EvaluationError where it has none."""
        variables = scope.variables
        if self._depth > 1 and scope.widest() ** self._depth > MAX_STEPS:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        if self._sizes and not f"{self._source}{variables}".isascii() and self._exact is not self:
            exact = self._counting_characters()
            if exact is not self:
                return exact.evaluate(Scope(variables, exact.functions, scope.widest))
        return self._run(scope)

    def _run(self, scope: Scope) -> Any:
        try:
            return self._program.execute(scope.context())
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0]}") from error
        except IndexError as error:
            raise EvaluationError(str(error)) from error
        except ZeroDivisionError as error:
            what = "modulus" if "modulo" in str(error) else "division"
            raise EvaluationError(f"{what} by zero") from error
        except OverflowError as error:
            raise EvaluationError("integer overflow") from error
        except TypeError as error:
            raise EvaluationError("no such overload") from error
        except (RuntimeError, ValueError, RecursionError) as error:
            raise EvaluationError(_function_error(str(error))) from error


@lru_cache(maxsize=512)
def compiled(source: str, *, optional_old: bool = False) -> Expression:
    """An expression, the same for the same text: a rule is looked at when it is defined, and once more when served."""
    return Expression(source, optional_old=optional_old)


class Scope:
    """What the names in expressions stand for; it is made into the library's values once, if ever."""

    __slots__ = ("_context", "_functions", "variables", "widest")

    def __init__(self, variables: dict[str, Any], functions: Iterable[str], widest: Callable[[], int]) -> None:
        """*functions* are all that the expressions call; *widest* as the function of that name."""
        self.variables = variables
        self.widest = widest
        self._functions = functions
        self._context: cel.Context | None = None

    def context(self) -> cel.Context:
        """The variables, and those of the functions that the library does not know."""
        if self._context is None:
            self._context = cel.Context(variables=self.variables, functions=_known(frozenset(self._functions)))
        return self._context


@lru_cache(maxsize=256)
def _known(names: frozenset[str]) -> dict[str, Function]:
    return {
        known: call
        for known, call in _EXTENSIONS.items()
        if any(known == name or known.endswith(f".{name}") for name in names)
    }


_CONVERSIONS: Final = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


def _function_error(text: str) -> str:
    """What cel-go would say where a function refuses its arguments."""
    if text.startswith("Undefined variable or function"):
        return "no such overload"
    found = re.match(r"Function '([^']*)' error: (.*?)(?:\. Check function arguments.*)?$", text, re.DOTALL)
    if not found:
        return text
    name, told = found[1], found[2]
    if name in _CONVERSIONS:
        return f"type conversion error from 'string' to '{_CONVERSIONS[name]}'"
    told = re.sub(r"^Python function call failed: \w+: ", "", told)
    outside = re.search(r"(?:\[|index )(-?\d+)\b.* out of ", told)
    return f"index out of range: {outside[1]}" if outside else told


def _parse_error(text: str) -> str:
    """The parser's message as cel-go words it: lines of source begin with " | "."""
    _, _, issues = text.partition(": ERROR: ")
    return re.sub(r"^\|", " |", f"ERROR: {issues or text}", flags=re.MULTILINE)


def complaints(source: str, node: Node, *, resource: bool, optional_old: bool, result: str) -> str:
    """What the API server says of the types in *source*, a rule of *node* or its message; "" if nothing."""
    own = cel_types.type_of(node, resource=resource)
    if own is None:
        return ""
    variables = {"self": own, "oldSelf": ("optional_type", own) if optional_old else own}
    try:
        tree = parse(source)
        errors = cel_types.errors_of(tree, source, variables)
    except (Unparsed, RecursionError):
        return ""
    except cel_types.Unsupported as error:
        return f"compilation failed: this server does not support {error}"
    if errors:
        return "compilation failed: " + "\n".join(errors)
    return "" if tree.type == result else f"must evaluate to a {result}"


def nesting(source: str) -> int:
    """How deep loops are nested in *source*, at most."""
    ends: list[int] = []
    deepest = 0
    starts = {found.end() - 1 for found in _MACROS.finditer(source)}
    depth = 0
    for at, char in enumerate(source):
        if char == "(":
            depth += 1
            if at in starts:
                ends.append(depth)
                deepest = max(deepest, len(ends))
        elif char == ")":
            if ends and ends[-1] == depth:
                ends.pop()
            depth -= 1
    return deepest


def widest(node: Node, value: Any) -> int:
    """How many items the largest collection within *value* has that a rule may loop over.

    What has no type in the schema is none of these: Kubernetes declares it to no rule.
    """
    items: Iterable[tuple[Node | None, Any]] = ()
    looped = 0
    if isinstance(value, dict):
        items = ((node.properties.get(key, node.additional), item) for key, item in value.items())
        looped = len(value) if node.additional is not None else 0
    elif isinstance(value, list):
        items = ((node.items, item) for item in value)
        looped = len(value)
    below = max((widest(child, item) for child, item in items if child is not None), default=0)
    return max(looped, below, 10)


class Rule:
    """One entry of ``x-kubernetes-validations``."""

    __slots__ = ("field_path", "message", "optional_old", "raw", "tests", "uses_old")

    def __init__(self, raw: JsonObject) -> None:
        """*raw* has been found to be right by :mod:`structural`."""
        self.raw = raw
        self.optional_old = bool(raw.get("optionalOldSelf"))
        self.tests = compiled(raw["rule"], optional_old=self.optional_old)
        message = raw.get("messageExpression")
        self.message = compiled(message, optional_old=self.optional_old) if message else None
        self.uses_old = "oldSelf" in self.tests.variables
        self.field_path = normal_path(raw["fieldPath"]) if raw.get("fieldPath") else ""

    @property
    def functions(self) -> frozenset[str]:
        """Names that the rule and its message call."""
        return self.tests.functions | (self.message.functions if self.message else frozenset())

    @property
    def text(self) -> str:
        """How messages call the rule."""
        return str(self.raw.get("message") or self.raw["rule"]).strip()

    @property
    def failure(self) -> str:
        """What a user reads when the rule is broken."""
        return str(self.raw["message"]).strip() if self.raw.get("message") else f"failed rule: {self.text}"


class Rules:
    """The rules of a schema and of all that is below it."""

    __slots__ = ("_functions", "_looks_back", "_passed", "additional", "items", "node", "properties", "rules", "view")

    def __init__(self, node: Node, rules: Sequence[Rule]) -> None:
        """Use :func:`rules_of`."""
        self.node = node
        self.rules = rules
        self.view = view_of(node) if rules else None
        self._functions = frozenset(name for rule in rules for name in rule.functions)
        self._looks_back = any(rule.uses_old for rule in rules)
        self._passed: set[bytes] = set()
        self.properties: dict[str, Rules] = {}
        self.additional: Rules | None = None
        self.items: Rules | None = None

    def check(self, new: Any, old: Any, twin: Twin | None, path: str = "") -> list[FieldError]:
        """What is wrong with *new*, which stands at *path*."""
        errors: list[FieldError] = []
        with suppress(_OutOfBudget):
            self.check_at(path, new, old, twin, None, errors)
        return errors

    def check_at(
        self, path: str, new: Any, old: Any, twin: Twin | None, parent: Twin | None, errors: list[FieldError]
    ) -> None:
        """Add what is wrong with *new* to *errors*; *parent* is the nearest value above that has a twin."""
        if new is None:
            return
        if self.rules:
            self._evaluate(new, old, path, twin, parent, errors)
        for check, below, old_below, path_below, key in self._children(new, old, path):
            if twin is None:
                check.check_at(path_below, below, old_below, None, parent, errors)
            elif parent is None and key in {"apiVersion", "kind"}:
                check.check_at(path_below, below, old_below, None, None, errors)
            else:
                next_twin = twin.index(key) if isinstance(key, int) else twin.key(key)
                check.check_at(path_below, below, old_below, next_twin, twin, errors)

    def _children(self, new: Any, old: Any, path: str) -> Iterator[tuple[Rules, Any, Any, str, str | int]]:
        if isinstance(new, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in new.items():
                if (check := self.properties.get(key)) is not None:
                    yield check, item, before.get(key), f"{path}.{key}" if path else key, key
                elif self.additional is not None:
                    yield self.additional, item, before.get(key), f"{path}[{key}]", key
        elif isinstance(new, list) and self.items is not None:
            olds = by_key(self.node, old)
            for at, item in enumerate(new):
                key = map_key(self.node, item) if olds else None
                yield self.items, item, None if key is None else olds.get(key), f"{path}[{at}]", at

    def _evaluate(
        self, new: Any, old: Any, path: str, twin: Twin | None, parent: Twin | None, errors: list[FieldError]
    ) -> None:
        text = self._text(new)
        if text is not None and text in self._passed:
            return
        kind = self.node.type
        where = path or "<nil>"
        misfit = _misfit(self.node, new)
        seen = self.view(new) if self.view else new
        seen_old = self.view(old) if self.view and old is not None else old

        def width() -> int:
            return max(widest(self.node, new), widest(self.node, old))

        alone = Scope({"self": seen}, self._functions, width)
        passed = True
        for rule in self.rules:
            if rule.uses_old and old is None and not rule.optional_old:
                continue
            scope = alone
            if rule.uses_old or (rule.message and "oldSelf" in rule.message.variables):
                before = seen_old
                if rule.optional_old:
                    optional = cel.OptionalValue
                    before = optional.none() if old is None else optional.of(seen_old)
                scope = Scope({"self": seen, "oldSelf": before}, self._functions, width)
            try:
                if misfit:
                    raise EvaluationError(misfit)  # noqa: TRY301 told as if it had been found while evaluating
                if rule.tests.evaluate(scope) is True:
                    continue
            except EvaluationError as error:
                passed = False
                errors.append(FieldError(Cause.INVALID, where, kind, _told(str(error), rule)))
                if str(error).startswith("operation cancelled"):
                    raise _OutOfBudget from error
                continue
            passed = False
            ratchet = twin or parent
            if not rule.uses_old and ratchet is not None and ratchet.same():
                continue
            detail = _message(rule, scope) or rule.failure
            cause = _REASONS.get(rule.raw.get("reason") or "", Cause.INVALID)
            target = f"{path}{rule.field_path}" if path or not rule.field_path else rule.field_path.removeprefix(".")
            errors.append(FieldError(cause, target or "<nil>", kind, "" if cause is Cause.DUPLICATE else detail))
        if passed and text is not None:
            if len(self._passed) >= _MOST_PASSED:
                self._passed.clear()
            self._passed.add(text)

    def _text(self, value: Any) -> bytes | None:
        """What stands for *value* among those that are known to pass; None if it is not worth to know that."""
        if self._looks_back:
            return None
        try:
            text = encode(value)
        except OverflowError:  # an integer that is too large for msgspec
            return None
        return text if len(text) <= _LONGEST_PASSED else None


def _misfit(node: Node, value: Any) -> str:
    """Why *value*, of a type that the schema does not have, cannot be seen from within CEL; "" where it can."""
    if node.raw.get("x-kubernetes-int-or-string"):
        wrong = type(value) not in {int, str}
        return "invalid data, expected XIntOrString value to be either a string or integer" if wrong else ""
    wanted, right = _SEEN_AS.get(node.type, ("", ()))
    if not wanted or type(value) in right:
        return ""
    if node.type in {"object", "array"}:
        return f"invalid data, expected {wanted} for the provided schema with type={node.type}"
    return f"invalid data, expected {wanted}, got {_GO_TYPES.get(type(value), 'nil')}"


_SEEN_AS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "object": ("a map", (dict,)),
    "array": ("an array", (list,)),
    "string": ("string", (str,)),
    "boolean": ("bool", (bool,)),
    "integer": ("int", (int,)),
    "number": ("float", (int, float)),
}
_GO_TYPES: Final[dict[type, str]] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


class _OutOfBudget(Exception):
    """No further rules are evaluated."""


def _told(error: str, rule: Rule) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {rule.text}"
        )
    if error.startswith("operation cancelled"):
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.text}"
        )
    return f"{error} evaluating rule: {rule.text}"


def _message(rule: Rule, scope: Scope) -> str:
    """What ``messageExpression`` gives; "" where it gives nothing that can be used."""
    if rule.message is None:
        return ""
    try:
        text = rule.message.evaluate(scope)
    except EvaluationError:
        return ""
    text = text.strip() if isinstance(text, str) else ""
    return "" if "\n" in text or len(text.encode()) > _MAX_MESSAGE else text


def blocks(errors: Sequence[FieldError]) -> bool:
    """Whether rules are not evaluated because of *errors*."""
    return any(error.cause in _BLOCKING for error in errors)


def rules_of(node: Node) -> Rules | None:
    """The rules of *node* and below; None if there are none."""
    rules = Rules(node, [Rule(raw) for raw in node.raw.get("x-kubernetes-validations") or () if raw["rule"].strip()])
    for key, child in node.properties.items():
        if below := rules_of(child):
            rules.properties[key] = below
    rules.additional = rules_of(node.additional) if node.additional else None
    rules.items = rules_of(node.items) if node.items else None
    return rules if rules.rules or rules.properties or rules.additional or rules.items else None


def normal_path(path: str) -> str:
    """A ``fieldPath`` as field paths are written: ``.a['b']`` is ``.a.b``."""
    return re.sub(r"\['((?:[^'\\]|\\.)*)'\]", lambda found: "." + re.sub(r"\\(.)", r"\1", found[1]), path)


# How values look from within CEL

View = Callable[[Any], Any]


def view_of(node: Node) -> View | None:
    """How CEL sees values of *node*; None where it is as JSON has them."""
    if node.raw.get("x-kubernetes-int-or-string"):
        return None
    if node.type == "number":
        return lambda value: float(value) if type(value) is int else value
    if node.type == "string":
        return _STRING_VIEWS.get((node.raw.get("format") or "").replace("-", ""))
    if node.type == "array" and node.items is not None and (items := view_of(node.items)):
        return lambda value: [items(item) for item in value] if isinstance(value, list) else value
    if node.additional is not None and (additional := view_of(node.additional)):
        return lambda value: (
            {key: additional(item) for key, item in value.items()} if isinstance(value, dict) else value
        )
    below = {key: view_of(child) for key, child in node.properties.items()}
    renamed = {key: escaped(key) for key in below}
    changed = {key: (renamed[key], view) for key, view in below.items() if view or renamed[key] != key}
    if not changed:
        return None
    return _object_view(changed)


def _object_view(changed: dict[str, tuple[str, View | None]]) -> View:
    def seen(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result = {}
        for key, item in value.items():
            name, view = changed.get(key, (key, None))
            result[name] = view(item) if view and item is not None else item
            if name == f"__{key}__":  # a reserved word, which may be written either way after a dot
                result[key] = result[name]
        return result

    return seen


def _time(text: Any) -> Any:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return text
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _duration(text: Any) -> Any:
    seconds = formats.go_duration(text) if isinstance(text, str) else None
    return text if seconds is None else timedelta(seconds=seconds)


def _bytes(text: Any) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return text


_STRING_VIEWS: Final[dict[str, View]] = {
    "date": _time,
    "datetime": _time,
    "duration": _duration,
    "byte": _bytes,
}
