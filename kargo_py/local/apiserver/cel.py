"""The rules of a schema that are written in CEL (``x-kubernetes-validations``).

The CEL library evaluates them; around it this module does what Kubernetes does: which rule applies where, what
``oldSelf`` is, how values look from within CEL, and how a failure is told. Source: apiextensions-apiserver
``pkg/apiserver/schema/cel``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import cel

from kargo_py.local.apiserver import formats
from kargo_py.local.apiserver.cel_functions import Function, functions
from kargo_py.local.apiserver.checks import Twin, map_key
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.nodes import Node
from kargo_py.local.apiserver.wire import JsonObject

MAX_RULE: Final = 16 * 1024
"""Characters of an expression; the parser is recursive."""
MAX_STEPS: Final = 1_000_000
"""How often the innermost part of nested loops may be evaluated."""
_MAX_MESSAGE: Final = 5 * 1024
_MACROS: Final = re.compile(r"\.(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
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
    """A compiled expression."""

    __slots__ = ("_context", "_depth", "_program", "variables")

    def __init__(self, source: str) -> None:
        """Raise ExpressionError if *source* is no expression."""
        if len(source) > MAX_RULE:
            raise ExpressionError(f"the expression is longer than {MAX_RULE} characters")
        try:
            self._program = cel.compile(source)
        except (ValueError, RecursionError) as error:
            raise ExpressionError(_parse_error(str(error))) from error
        references = self._program.references()
        self.variables = frozenset(references["variables"])
        wanted: dict[str, Function] = {}
        for name in references["functions"]:
            wanted |= {
                known: call for known, call in _EXTENSIONS.items() if known == name or known.endswith(f".{name}")
            }
        self._context = cel.Context(functions=wanted) if wanted else None
        self._depth = nesting(source)

    def evaluate(self, variables: dict[str, Any]) -> Any:
        """The value of the expression; EvaluationError where it has none."""
        if self._depth > 1 and widest(variables) ** self._depth > MAX_STEPS:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        try:
            if self._context is None:
                return self._program.execute(variables)
            self._context.update(variables)
            return self._program.execute(self._context)
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
            found = re.match(r"Function '[^']*' error: (.*?)(?:\. Check function arguments.*)?$", str(error), re.DOTALL)
            raise EvaluationError(found[1] if found else str(error)) from error


def _parse_error(text: str) -> str:
    """The parser's message as cel-go words it: lines of source begin with " | "."""
    _, _, issues = text.partition(": ERROR: ")
    return re.sub(r"^\|", " |", f"ERROR: {issues or text}", flags=re.MULTILINE)


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


def widest(value: Any) -> int:
    """How many items the largest collection within *value* has."""
    if isinstance(value, dict):
        return max(len(value), max(map(widest, value.values()), default=0), 10)
    if isinstance(value, list):
        return max(len(value), max(map(widest, value), default=0), 10)
    return 10


class Rule:
    """One entry of ``x-kubernetes-validations``."""

    __slots__ = ("field_path", "message", "optional_old", "raw", "tests", "uses_old")

    def __init__(self, raw: JsonObject) -> None:
        """*raw* has been found to be right by :mod:`structural`."""
        self.raw = raw
        self.tests = Expression(raw["rule"])
        self.message = Expression(raw["messageExpression"]) if raw.get("messageExpression") else None
        self.uses_old = "oldSelf" in self.tests.variables
        self.optional_old = bool(raw.get("optionalOldSelf"))
        self.field_path = normal_path(raw["fieldPath"]) if raw.get("fieldPath") else ""

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

    __slots__ = ("additional", "items", "node", "properties", "rules", "view")

    def __init__(self, node: Node, rules: Sequence[Rule]) -> None:
        """Use :func:`rules_of`."""
        self.node = node
        self.rules = rules
        self.view = view_of(node) if rules else None
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
            by_key: dict[str, Any] = {}
            if self.node.list_type == "map" and isinstance(old, list):
                for item in old:
                    by_key.setdefault(map_key(self.node, item), item)
            for at, item in enumerate(new):
                yield self.items, item, by_key.get(map_key(self.node, item)) if by_key else None, f"{path}[{at}]", at

    def _evaluate(
        self, new: Any, old: Any, path: str, twin: Twin | None, parent: Twin | None, errors: list[FieldError]
    ) -> None:
        kind = self.node.type
        where = path or "<nil>"
        seen = self.view(new) if self.view else new
        seen_old = self.view(old) if self.view and old is not None else old
        for rule in self.rules:
            if rule.uses_old and old is None and not rule.optional_old:
                continue
            variables = {"self": seen}
            if rule.uses_old or (rule.message and "oldSelf" in rule.message.variables):
                variables["oldSelf"] = seen_old
                if rule.optional_old:
                    optional = cel.OptionalValue
                    variables["oldSelf"] = optional.none() if old is None else optional.of(seen_old)
            try:
                if rule.tests.evaluate(variables) is True:
                    continue
            except EvaluationError as error:
                errors.append(FieldError(Cause.INVALID, where, kind, _told(str(error), rule)))
                if str(error).startswith("operation cancelled"):
                    raise _OutOfBudget from error
                continue
            ratchet = twin or parent
            if not rule.uses_old and ratchet is not None and ratchet.same():
                continue
            detail = _message(rule, variables) or rule.failure
            cause = _REASONS.get(rule.raw.get("reason") or "", Cause.INVALID)
            target = f"{path}{rule.field_path}" if path or not rule.field_path else rule.field_path.removeprefix(".")
            errors.append(FieldError(cause, target or "<nil>", kind, "" if cause is Cause.DUPLICATE else detail))


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


def _message(rule: Rule, variables: dict[str, Any]) -> str:
    """What ``messageExpression`` gives; "" where it gives nothing that can be used."""
    if rule.message is None:
        return ""
    try:
        text = rule.message.evaluate(variables)
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


def escaped(name: str) -> str:
    """The name of a field in CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, written in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(plain, written)
    return name


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


_STRING_VIEWS: Final[dict[str, View]] = {
    "date": _time,
    "datetime": _time,
    "duration": _duration,
    "byte": lambda text: text.encode() if isinstance(text, str) else text,
}
