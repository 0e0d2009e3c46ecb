"""Templates: texts with expressions in them, ``${{ }}`` or ``${% %}``, and what their results become.

Kargo guesses what a result is: a number, a bool, JSON, or a string. So do we where a step takes anything. Where a step
takes a string nothing is guessed: the tag 1.30 stays 1.30. A guess keeps its text, for where it is used as a string.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from kargo_py.expressions.analysis import parts
from kargo_py.expressions.compiled import Functions
from kargo_py.expressions.errors import ExpressionError, Fault, Kind, LimitFault
from kargo_py.expressions.evaluator import REMEMBERED_LENGTH, Expression, prepare
from kargo_py.expressions.hiding import Secrecy
from kargo_py.expressions.lookups import Missing
from kargo_py.expressions.numbers import format_float, parse_bool, parse_float
from kargo_py.expressions.tree import Literal
from kargo_py.expressions.values import MAX_TEXT, Allowance, Budget, Guess, Value, as_text
from kargo_py.expressions.writing import from_json, to_json

_BEGIN: Final = re.compile(r"\$\{\{|\$\{%")
_MAX_EXPRESSIONS: Final = 1000
_MAX_DEPTH: Final = 100
_MAX_VALUES: Final = 100_000

Path: TypeAlias = tuple[str | int, ...]
"""Where in a configuration: names and indices from the top."""


class TemplateError(ExpressionError):
    """A template has no result; positions are those within the template."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text cut into plain parts and expressions."""

    source: str
    parts: tuple[str | tuple[int, Expression], ...]
    """An expression stands with the index at which it begins."""

    @property
    def plain(self) -> bool:
        """Whether there is no expression in it, so that it stays as it is."""
        return all(isinstance(part, str) for part in self.parts)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Those in it."""
        return tuple(part[1] for part in self.parts if not isinstance(part, str))


def parse_template(source: str) -> Template:
    """Cut *source* up. Raises TemplateError for an expression that is not closed or is none."""
    return _remembered(source) if len(source) <= REMEMBERED_LENGTH else _parse(source)


def _parse(source: str) -> Template:
    if len(source) > MAX_TEXT:
        raise TemplateError(f"the text has {len(source)} characters, at most {MAX_TEXT}", "", 0, Kind.LIMIT)
    parts: list[str | tuple[int, Expression]] = []
    at = count = 0
    while found := _BEGIN.search(source, at):
        closing = "}}" if found[0] == "${{" else "%}"
        end = source.find(closing, found.end())
        if end < 0:
            why = f'unclosed expression: expected "{closing}" but reached end of template'
            raise TemplateError(why, source, found.start(), Kind.SYNTAX)
        count += 1
        if count > _MAX_EXPRESSIONS:
            raise TemplateError(f"more than {_MAX_EXPRESSIONS} expressions", source, found.start(), Kind.LIMIT)
        if found.start() > at:
            parts.append(source[at : found.start()])
        inner = source[found.end() : end]
        if not inner:  # Kargo takes ${{}} for the end of all expressions
            parts.append(source[end + 2 :])
            at = len(source)
            break
        try:
            parts.append((found.end(), prepare(inner)))
        except ExpressionError as error:
            raise TemplateError(error.why, source, found.end() + error.at, error.kind) from None
        at = end + 2
    if at < len(source):
        parts.append(source[at:])
    return Template(source, tuple(parts))


_remembered: Final = lru_cache(maxsize=256)(_parse)


class Witness(Protocol):
    """Who keeps what is made with Secrets secret."""

    def seen(self, text: str | None, expression: Expression, names: Mapping[str, Value]) -> Secrecy:
        """How secret *text* is, the result of *expression* over *names* as it is put in; None if it has none."""

    def joined(self, value: Value, text: str, pieces: Sequence[str | None]) -> None:
        """*value* was guessed from *text*, put together of several *pieces*: None is a secret one."""

    def taint(self, name: str, secrecy: Secrecy) -> None:
        """A Secret was looked at for the variable *name*."""


@dataclass(frozen=True, slots=True)
class Scope:
    """All that templates are evaluated with."""

    environment: Mapping[str, Value]
    functions: Functions
    now: datetime
    witness: Witness | None = None
    """Told of all that may be made with Secrets."""
    allowance: Allowance = field(default_factory=Allowance)
    """What all of them together may take."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a template became."""

    value: Value
    """As Kargo guesses: a number, a bool, nil, a list, a map or a string."""
    text: str | None
    """For a place that takes a string; None is nil."""
    secrecy: Secrecy = Secrecy.NONE
    """That of the most secret expression in it."""

    def variable(self) -> Value:
        """To be kept for later expressions: with its text, if it was guessed."""
        if self.value is None or self.text is None or type(self.value) is str:
            return self.value
        return Guess(self.value, self.text)


def render(source: str, scope: Scope) -> Rendered:
    """The result of a template. Raises TemplateError."""
    template = parse_template(source)
    if template.plain:
        text = "".join(part for part in template.parts if isinstance(part, str)) if template.parts else source
        # A text without a delimiter is left alone; one with an empty expression is looked at as any other
        return Rendered(text, text) if not _BEGIN.search(source) else _coerced(source, text, alone_nil=False)
    witness = scope.witness
    texts: list[str] = []
    hidden: set[int] = set()
    nil, secrecy = False, Secrecy.NONE
    for part in template.parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        begin, expression = part
        try:
            value = as_text(_evaluated(template, begin, expression, scope))
            texts.append(_text(template, begin, value))
        except TemplateError as error:
            if witness and witness.seen(None, expression, scope.environment):
                # What it quotes may have been made of a secret, which nobody would know for one.
                raise error.without_data() from None
            raise
        except Missing as missing:
            lookup = missing.lookup
            if witness and witness.seen(None, expression, scope.environment) and not _says(expression, lookup.name):
                # Who cannot read it tells its name.
                raise Missing(dataclasses.replace(lookup, untold=True)) from None
            raise
        nil = value is None
        if witness and (made := witness.seen(texts[-1], expression, scope.environment)):
            secrecy = max(secrecy, made)
            hidden.add(len(texts) - 1)
        if sum(map(len, texts[-2:])) > MAX_TEXT:
            raise TemplateError(f"the result has more than {MAX_TEXT} characters", source, begin, Kind.LIMIT)
    text = "".join(texts)
    if len(text) > MAX_TEXT:
        size = "…" if secrecy else len(text)
        raise TemplateError(f"the result has {size} characters, at most {MAX_TEXT}", source, 0, Kind.LIMIT)
    rendered = _coerced(source, text, alone_nil=nil and text.strip() == "null")
    if not secrecy:
        return rendered
    if witness and secrecy is Secrecy.FULL and len(texts) > 1 and not isinstance(rendered.value, str | None):
        witness.joined(rendered.value, text, [None if at in hidden else piece for at, piece in enumerate(texts)])
    return Rendered(rendered.value, rendered.text, secrecy)


def _evaluated(template: Template, begin: int, expression: Expression, scope: Scope) -> Value:
    try:
        allowance = scope.allowance
        return expression.evaluate(scope.environment, scope.functions, now=scope.now, allowance=allowance)
    except ExpressionError as error:
        raise TemplateError(error.why, template.source, begin + error.at, error.kind, untold=error.untold) from None


def _says(expression: Expression, text: str) -> bool:
    """Whether *text* stands in *expression* for all to read."""
    return any(isinstance(part, Literal) and part.value == text for part in parts(expression.tree))


def _text(template: Template, begin: int, value: Value) -> str:
    if type(value) is str:
        return value
    try:
        Budget().measure(value)
        return to_json(value)
    except Fault as fault:
        raise TemplateError(str(fault), template.source, begin, fault.kind, untold=fault.untold) from None


def _coerced(source: str, text: str, *, alone_nil: bool) -> Rendered:
    """What Kargo makes of a result."""
    bare = text.removesuffix("\n")
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        string = bare[1:-1] + text[len(bare) :]
        return Rendered(string, string)
    if alone_nil:
        return Rendered(None, None)
    number = parse_float(bare)
    if number is not None:
        return Rendered(number, text)
    truth = parse_bool(bare)
    if truth is not None:
        return Rendered(truth, text)
    try:
        value = from_json(bare, Budget())
    except LimitFault as fault:
        raise TemplateError(str(fault), source, 0, Kind.LIMIT) from None
    except Fault:
        return Rendered(text, text)
    # JSON's own strings lose their quotes above
    return Rendered(value, text)


Places: TypeAlias = Callable[[Path], bool]
"""Whether the place at a path takes a string and nothing else."""


def any_place(_: Path) -> bool:
    """No place is known to take strings alone."""
    return False


class ConfigurationError(Exception):
    """Templates in a configuration have no result."""

    def __init__(self, problems: list[tuple[Path, ExpressionError]]) -> None:
        """All problems, each with its path."""
        self.problems = problems
        super().__init__("; ".join(f"{dotted(path)}: {error}" for path, error in problems[:10]))


def dotted(path: Path) -> str:
    """*path* as people write it: ``apps[0].name``."""
    written = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return written.removeprefix(".") or "config"


def render_all(value: Any, scope: Scope, is_string: Places = any_place, *, keep_text: bool = False) -> Any:
    """*value* with each template in it rendered; names are left alone. Raises ConfigurationError with all problems.

    With *keep_text*, guesses stay with their texts, for outputs that later steps read.
    """
    problems: list[tuple[Path, ExpressionError]] = []
    rendered = _Walk(scope, is_string, problems, keep_text=keep_text).walk(value, ())
    if problems:
        raise ConfigurationError(problems)
    return rendered


class _Walk:
    def __init__(
        self, scope: Scope, is_string: Places, problems: list[tuple[Path, ExpressionError]], *, keep_text: bool
    ) -> None:
        self.scope = scope
        self.is_string = is_string
        self.problems = problems
        self.keep_text = keep_text
        self.values = 0

    def walk(self, value: Any, path: Path) -> Any:
        self.values += 1
        if len(path) > _MAX_DEPTH or self.values > _MAX_VALUES:
            limit = f"nests more than {_MAX_DEPTH} deep or has more than {_MAX_VALUES} values"
            raise ConfigurationError([(path[:5], ExpressionError(limit, "", 0, Kind.LIMIT))])
        if isinstance(value, dict):
            return {key: self.walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.walk(item, (*path, index)) for index, item in enumerate(value)]
        return self._render(value, path) if isinstance(value, str) else value

    def _render(self, source: str, path: Path) -> Any:
        try:
            rendered = render(source, self.scope)
        except ExpressionError as error:
            self.problems.append((path, error))
            return None
        if self.is_string(path):
            return rendered.text
        if isinstance(rendered.value, float) and not _finite(rendered.value):
            shown = "…" if rendered.secrecy else format_float(rendered.value)
            why = f"unsupported value: {shown} is no JSON; quote() keeps it a string"
            self.problems.append((path, TemplateError(why, source, 0, Kind.EVALUATION)))
            return None
        return rendered.variable() if self.keep_text else rendered.value


def _finite(number: float) -> bool:
    return number - number == 0


def templates_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """The strings in *value* that have expressions, with their paths."""
    waiting: list[tuple[Path, Any]] = [(path, value)]
    while waiting:
        where, one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(((*where, key), item) for key, item in reversed(one.items()))
        elif isinstance(one, list):
            waiting.extend(((*where, index), one[index]) for index in range(len(one) - 1, -1, -1))
        elif isinstance(one, str) and _BEGIN.search(one):
            yield where, one


def string_places(schema: Mapping[str, Any]) -> Places:
    """The places that a JSON schema gives to strings alone; where it is null or a string, too."""
    types = type_places(schema)
    return lambda path: types(path) - {"null"} == {"string"}


def type_places(schema: Mapping[str, Any]) -> Callable[[Path], frozenset[str]]:
    """The types that a JSON schema has for a place: "any" where it does not say, none where it has no such place."""

    @lru_cache(maxsize=1024)
    def types(path: Path) -> frozenset[str]:
        here = [schema]
        for part in path:
            here = [below for one in here for below in _below(_alternatives(one, schema), part)]
        return frozenset(kind for one in here for kind in _types(_alternatives(one, schema)))

    return types


def _alternatives(one: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """*one* with its references followed and its choices apart."""
    found: list[Mapping[str, Any]] = []
    waiting, seen = [one], 0
    while waiting and seen < 100:
        seen += 1
        current = waiting.pop()
        reference = current.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for name in reference[2:].split("/"):
                target = target.get(name, {}) if isinstance(target, Mapping) else {}
            waiting.append(target)
            continue
        choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in current.get(key, ())]
        waiting.extend(choice for choice in choices if isinstance(choice, Mapping))
        if not choices or "type" in current or "properties" in current:
            found.append(current)
    return found


def _below(schemas: list[Mapping[str, Any]], part: str | int) -> Iterator[Mapping[str, Any]]:
    for one in schemas:
        if isinstance(part, int):
            below = one.get("items")
        else:
            below = one.get("properties", {}).get(part, one.get("additionalProperties"))
        if isinstance(below, Mapping):
            yield below


def _types(schemas: list[Mapping[str, Any]]) -> Iterator[str]:
    for one in schemas:
        kind = one.get("type")
        if isinstance(kind, list):
            yield from kind
        elif isinstance(kind, str):
            yield kind
        elif "const" in one or "enum" in one:
            yield from {"string" if isinstance(v, str) else "other" for v in one.get("enum", [one.get("const")])}
        else:
            yield "any"
