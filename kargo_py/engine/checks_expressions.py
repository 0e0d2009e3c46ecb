"""What can be said of templates before they are evaluated: syntax, constant results, conditions, guesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kargo_py.engine.checks_names import Scene, remarks
from kargo_py.engine.problems import Findings, Place, shortened
from kargo_py.expressions.analysis import Called, Read, Uses, chain, is_constant, outcomes, uses
from kargo_py.expressions.errors import ExpressionError, Kind
from kargo_py.expressions.evaluator import Expression
from kargo_py.expressions.functions import TEXT_FUNCTIONS, VERSION_FUNCTIONS
from kargo_py.expressions.numbers import format_float, format_json_float, parse_bool, parse_float
from kargo_py.expressions.templates import Scope, Template, TemplateError, parse_template, render, templates_in
from kargo_py.expressions.tree import Literal
from kargo_py.expressions.values import Function
from kargo_py.messages import Shown, message

_SHOWN = Shown.PROMOTION | Shown.STAGE

MALFORMED = message(
    "not an expression: {error}",
    do="Correct the expression where the caret points: see [Expressions](expressions.md). To YAML, ` #` without quotes "
    "around it begins a comment, so that the rest of the expression is missing.",
    shown=_SHOWN,
)
WITHOUT_VALUE = message(
    "can have no value: {error}",
    do="The expression is always the same, and always fails. Correct it where the caret points.",
    shown=_SHOWN,
)
IF_WITHOUT_EXPRESSION = message(
    "the text {text!r} is never true or false; write ${{{{ {inner} }}}}",
    do="The condition of a step is an expression between `${{` and `}}`.",
    shown=_SHOWN,
)
IF_NEVER_A_BOOL = message(
    "is never true or false, but {value}",
    do="The condition of a step must be an expression that is true or false.",
    shown=_SHOWN,
)
IF_WITH_TEXT = message(
    "is never true or false, because of the text {text!r} beside the expression",
    do="Put all of the condition into one expression: `${{ a && b }}`, not `${{ a }} && ${{ b }}`.",
    shown=_SHOWN,
)
IF_CONSTANT = message(
    "is always {value}",
    do="The step runs always, or never. `${{ always() }}` says that it is to run also after a failure.",
    shown=_SHOWN,
)
GUESSED = message(
    "a {what} is taken for a number if it looks like one: 1.30 becomes 1.3, the commit 1234e56 becomes 1.234e+59; "
    "write quote(…) around it to keep it",
    do="The field takes any value, so what an expression gives is guessed, as in Kargo. A text in `quote(…)` stays "
    "one.",
    shown=_SHOWN,
)
GUESSED_TEXT = message(
    "{text!r} becomes {value}; write quote(…) around it to keep it",
    do="The field takes any value, so what an expression gives is guessed, as in Kargo. A text in `quote(…)` stays "
    "one.",
    shown=_SHOWN,
)
NOT_A_NUMBER_OF_JSON = message(
    "becomes {value}, which is no number of JSON; write quote(…) around it to keep the text",
    do="The field takes any value, and Go reads this text as a number.",
    shown=_SHOWN,
)

MAX_LOOKED_AT: Final = 64 * 1024
"""Characters of expressions that are looked at, some for each text besides: at worst two seconds' work."""
_MOST_OF_CONSTANT: Final = 500
_MOST_OF_TEXT: Final = 80
_PURE: Final[Mapping[str, Function]] = {**TEXT_FUNCTIONS, **VERSION_FUNCTIONS}
_PURE_NAMES: Final = frozenset(_PURE)
_LETTERS_OF_BOOLS: Final = frozenset("tTrRuUeEfFaAlLsS")
_SPOILED: Final[Mapping[tuple[str, str], str]] = {
    ("imageFrom", "tag"): "tag",
    ("commitFrom", "id"): "commit",
    ("commitFrom", "tag"): "tag",
    ("commitFrom", "branch"): "branch",
    ("chartFrom", "version"): "version",
    ("artifactFrom", "version"): "version",
}
_SCOPE: Final = Scope({}, _PURE, datetime(2000, 1, 1, tzinfo=UTC))
"""For constant expressions, none of which looks at the time."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found in an expression, whose text may stand in many places."""

    expression: Expression
    uses: Uses
    constant: bool


class Templates:
    """Looks at templates; what is wrong goes to *findings*."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._left = MAX_LOOKED_AT
        self._looked: dict[int, _Looked] = {}

    @property
    def exhausted(self) -> bool:
        """Whether there was more than is looked at."""
        return self._left < 0

    def parse(self, source: str, place: Place) -> Template | None:
        """*source* cut up; None if that cannot be done, which is told, and if there was too much already."""
        self._left -= _effort(source)
        if self._left < 0:
            return None
        try:
            return parse_template(source)
        except ExpressionError as error:
            self._findings.add(place, MALFORMED(error=error))
            return None

    def _look(self, expression: Expression) -> _Looked:
        known = self._looked.get(id(expression))
        if known is None:
            known = self._looked[id(expression)] = _look_at(expression)
        return known

    def check(self, template: Template, place: Place, scene: Scene) -> None:
        """Check what its expressions read and call, and those that are constant."""
        for begin, expression in _expressions(template):
            looked = self._look(expression)
            found = remarks(looked.uses, scene)
            for remark in found:
                said = TemplateError(remark.text, template.source, begin + remark.at, Kind.EVALUATION)
                self._findings.add(place, str(said), warning=remark.warning)
            if not found and looked.constant:
                try:
                    expression.evaluate({}, _PURE, now=_SCOPE.now)
                except ExpressionError as error:
                    placed = TemplateError(error.why, template.source, begin + error.at, error.kind)
                    self._findings.add(place, WITHOUT_VALUE(error=placed))

    def check_guess(self, template: Template, place: Place, scene: Scene) -> None:
        """Check what would be lost where the place takes any value."""
        if constant(template):
            value = _rendered(template)
            if isinstance(value, float) and value - value != 0:
                self._findings.add(place, NOT_A_NUMBER_OF_JSON(value=format_float(value)))
                return
        alone = _alone(template)
        if alone is None:
            return
        begin, expression = alone
        for node in outcomes(expression.tree):
            if isinstance(node, Literal) and isinstance(node.value, str) and spoiled_text(node.value):
                said = GUESSED_TEXT(text=shortened(node.value, _MOST_OF_TEXT), value=_shown(_guess(node.value)))
            elif what := _spoiled(chain(node), scene):
                said = GUESSED(what=what)
            else:
                continue
            placed = TemplateError(said, template.source, begin + node.at, Kind.EVALUATION)
            self._findings.add(place, str(placed), warning=True)

    def check_condition(self, source: str, place: Place, scene: Scene) -> None:
        """Check that of a step."""
        if not any(templates_in(source)):
            shown = shortened(source, _MOST_OF_TEXT)
            self._findings.add(place, IF_WITHOUT_EXPRESSION(text=shown, inner=shown.strip()))
            return
        template = self.parse(source, place)
        if template is None:
            return
        self.check(template, place, scene)
        beside = "".join(part for part in template.parts if isinstance(part, str)).strip()
        if constant(template):
            value = _rendered(template)
            if isinstance(value, bool):
                self._findings.add(place, IF_CONSTANT(value=_shown(value)), warning=True)
            elif value is not _FAILED:
                self._findings.add(place, IF_NEVER_A_BOOL(value=_shown(value)))
        elif not set(beside) <= _LETTERS_OF_BOOLS:
            self._findings.add(place, IF_WITH_TEXT(text=shortened(beside, _MOST_OF_TEXT)))


_FAILED: Final = object()


def _rendered(template: Template) -> Any:
    """What a constant template becomes."""
    try:
        return render(template.source, _SCOPE).value
    except ExpressionError:
        return _FAILED  # told where its expressions are looked at


def _expressions(template: Template) -> Iterator[tuple[int, Expression]]:
    for part in template.parts:
        if not isinstance(part, str):
            yield part


def _look_at(expression: Expression) -> _Looked:
    found = uses(expression.tree)
    short = len(expression.source) <= _MOST_OF_CONSTANT
    return _Looked(expression, found, short and is_constant(expression.tree, found, _PURE_NAMES))


def _effort(source: str) -> int:
    """How much *source* takes to look at, in characters of expressions."""
    effort, at = 5, 0
    while (begin := source.find("${", at)) >= 0:
        ends = [end for end in (source.find("}}", begin), source.find("%}", begin)) if end >= 0]
        at = min(ends, default=len(source))
        effort += at - begin
    return effort


def constant(template: Template) -> bool:
    """Whether *template* has one value, which is quickly found."""
    return len(template.source) <= _MOST_OF_CONSTANT and all(
        _look_at(one).constant for _, one in _expressions(template)
    )


def constant_condition(source: str | None) -> bool | None:
    """What the condition of a step always is; None if that depends. What is none is told elsewhere."""
    if not source:
        return True
    try:
        template = parse_template(source) if len(source) <= _MOST_OF_CONSTANT else None
    except ExpressionError:
        return None
    if template is None:
        return None
    alone = _alone(template)
    if alone and isinstance(called := chain(alone[1].tree), Called) and called.name in {"always", "success"}:
        return True
    value = _rendered(template) if constant(template) else None
    return value if isinstance(value, bool) else None


def _alone(template: Template) -> tuple[int, Expression] | None:
    """The one expression that *template* is, with no text beside it but a newline at the end."""
    found = list(_expressions(template))
    beside = "".join(part for part in template.parts if isinstance(part, str))
    return found[0] if len(found) == 1 and beside in {"", "\n"} else None


def _guess(text: str) -> float | bool | None:
    """The number or bool that *text* is taken for; None if for neither."""
    bare = text.removesuffix("\n")
    number = parse_float(bare)
    return parse_bool(bare) if number is None else number


def spoiled_text(text: str) -> bool:
    """Whether a guess at *text* does not give it back: it is a number in another form, or a bool like T."""
    guess = _guess(text)
    return guess is not None and _shown(guess) != text.removesuffix("\n")


def spoiled_variable(template: Template, scene: Scene) -> str | None:
    """What a guess at a variable of this value may spoil; None if nothing is known of it."""
    if template.plain:
        return "text" if spoiled_text(template.source) else None
    alone = _alone(template)
    nodes = outcomes(alone[1].tree) if alone else iter(())
    return next((what for node in nodes if (what := _spoiled(chain(node), scene))), None)


def _spoiled(one: Read | Called | None, scene: Scene) -> str | None:
    match one:
        case Called(name=name, members=(member,)):
            return _SPOILED.get((name, member.lower()))
        case Read(path=("vars", name), optional=(_,)):
            return scene.variables.get(name)
    return None


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float):
        return format_json_float(value) if value - value == 0 else format_float(value)
    return shortened(repr(value), _MOST_OF_TEXT)
