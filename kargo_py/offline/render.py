"""What the steps of a Promotion would be called with: every expression evaluated that can be, and nothing run.

The steps before are taken to have succeeded. What nobody knows here, such as the output of a step that would have to
run, leaves the expressions that need it as they are, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from kargo_py.api.freight import Freight, FreightReference
from kargo_py.api.promotion import (
    ExpressionVariable,
    FreightCollection,
    Promotion,
    PromotionStatus,
    StepExecutionMetadata,
    StepStatus,
)
from kargo_py.controllers.lookups import LookupReader, LookupRefused
from kargo_py.engine.checks_config import Uncheckable, config_faults
from kargo_py.engine.evaluation import (
    EvaluationError,
    Position,
    Program,
    condition,
    places_of,
    position_of,
    program_of,
)
from kargo_py.engine.outputs import OutputError, checked_output, with_output
from kargo_py.expressions.analysis import Read, uses
from kargo_py.expressions.environment import VariableError, environment, evaluate_variables, with_variables
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.functions import SEPARATOR, promotion_functions, status_functions
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.lookups import Lookup, Lookups, Source, TooManyLookups, resolved
from kargo_py.expressions.numbers import format_json_float
from kargo_py.expressions.templates import (
    ConfigurationError,
    Places,
    Scope,
    any_place,
    parse_template,
    render_all,
    templates_in,
)
from kargo_py.expressions.values import Guess, Value
from kargo_py.messages import Shown, message
from kargo_py.offline.shelf import IN_NO_FILE, NotKnown
from kargo_py.steps.config import Config
from kargo_py.steps.registry import Kinds

OUTPUT_UNKNOWN = message(
    'the output of step "{alias}" is known only once it has run; give one with --step-output {alias}=JSON',
    do="Nothing to do: the expression is evaluated when the Promotion runs.",
    shown=Shown.LINT,
)
RUN_UNKNOWN = message(
    "{what} is known only once the Promotion runs",
    do="Nothing to do: the expression is evaluated when the Promotion runs.",
    shown=Shown.LINT,
)
METADATA_UNKNOWN = message(
    '{source}({name!r}) is known only once the Promotion runs: step "{alias}" sets metadata before',
    do="Nothing to do: the expression is evaluated when the Promotion runs.",
    shown=Shown.LINT,
)
SHARED_UNKNOWN = message(
    "which namespace has the shared resources is not known; give it with --shared-resources-namespace",
    do="Give the option as the controller has it.",
    shown=Shown.LINT,
)
URL_UNKNOWN = message(
    "ctx.uiBaseUrl is an option of the controller; give it with --ui-base-url",
    do="Give the option as the controller has it.",
    shown=Shown.LINT,
)
VARIABLE_FAULTY = message(
    "the variable {name} has no value",
    do="The problem with the variable itself is told, too.",
    shown=Shown.LINT,
)
NOT_EVALUATED = message(
    "{path}: not evaluated: {why}",
    do="The note says what is missing. The text in the output is the one of the template.",
    shown=Shown.LINT,
)
KIND_UNKNOWN = message(
    "no kind of step is called {uses} here; where it takes strings alone is not known, so values are guessed",
    do="Install the package that brings the kind, or correct `uses`. A step of an unknown kind is `Errored`.",
    shown=Shown.LINT,
)
IF_UNKNOWN = message(
    "whether the step runs is not known: it is taken to",
    do="Nothing to do: the `if` is evaluated when the Promotion runs.",
    shown=Shown.LINT,
)
ORIGIN_UNKNOWN = message(
    "Freight of {origin} is not known here, so what comes from it is nil",
    do="Put the Freight that the Stage has into `status.freightHistory` of the Stage's file, or use `--live`.",
    shown=Shown.LINT,
)

MARK: Final = "<not evaluated> "
_EXPONENTIAL: Final = 1e21
"""Numbers from here on have an exponent in JSON."""
_COMPOSE: Final = "compose-output"
_SETS_METADATA: Final = "set-metadata"
_METADATA: Final = frozenset({Source.STAGE_METADATA, Source.FREIGHT_METADATA, Source.FREIGHT_STATUS})
_FROM_FREIGHT: Final = frozenset({"commitFrom", "imageFrom", "chartFrom", "artifactFrom"})
_WHEN_RUN: Final = (
    "startedAt",
    "StartedAt",
    "finishedAt",
    "FinishedAt",
    "errorCount",
    "ErrorCount",
    "message",
    "Message",
)

Path = tuple[str | int, ...]
Reasons = dict[tuple[str, ...], str]
"""Why what stands below a path of the environment is not known."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """A step cannot be rendered: ``where`` leads from the step, or names a variable of the Promotion by its index."""

    step: int
    where: Path
    text: str


@dataclass(slots=True)
class RenderedStep:
    """What would become of a step; ``runs`` is None where that is not known."""

    alias: str
    uses: str
    runs: bool | None = True
    common: dict[str, Any] = field(default_factory=dict)
    """The variables of the Promotion."""
    own: dict[str, Any] = field(default_factory=dict)
    """Those of the step."""
    config: Any = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rendered:
    """All of it, without secrets."""

    steps: Sequence[RenderedStep]
    notes: Sequence[str]
    faults: Sequence[Fault]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is given. The Promotion has all its steps, without tasks; ``outputs`` are those of steps by their aliases.

    ``ui_base_url`` None and ``shared_namespace`` "": not known here.
    """

    promotion: Promotion
    freight: Freight | None
    collection: FreightCollection
    requested: Sequence[str]
    """The origins that the Stage requests."""
    kinds: Kinds
    reader: LookupReader
    now: datetime
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ui_base_url: str | None = None
    shared_namespace: str = ""


async def render(setting: Setting) -> Rendered:
    """Render all steps. Raises KubeError where a cluster is read."""
    return await _Rendering(setting).run()


class _Rendering:
    def __init__(self, setting: Setting) -> None:
        named = FreightReference(name=setting.promotion.spec.freight or "")
        reference = setting.freight.reference() if setting.freight is not None else named
        status = PromotionStatus(freight=reference, freight_collection=setting.collection)
        self.setting = setting
        self.secrets = Secrets()
        self.unknown: Reasons = dict(_unknown_context(setting))
        self._promotion = setting.promotion.replace(status=status)
        self._faults: dict[Fault, None] = {}
        self.notes: list[str] = []
        self.setter = ""
        """The alias of a step before that sets metadata."""

    async def run(self) -> Rendered:
        steps = [await self._step(index) for index in range(len(self._promotion.spec.steps or ()))]
        known = self.setting.collection.items
        if self.setting.freight is not None:
            self.notes += [ORIGIN_UNKNOWN(origin=o) for o in self.setting.requested if o not in known]
        mask = self.secrets.mask
        for step in steps:
            step.common, step.own, step.config = mask(step.common), mask(step.own), mask(step.config)
            step.notes = mask(step.notes)
        faults = [Fault(one.step, one.where, mask(one.text)) for one in self._faults]
        return Rendered(steps, mask(self.notes), faults)

    async def _step(self, index: int) -> RenderedStep:
        position = position_of(self._promotion, index)
        step = position.step
        made = RenderedStep(position.alias, step.uses or "")
        work = _Work(self, index, position, made)
        await work.variables()
        made.runs = await work.runs()
        kind = self.setting.kinds.get(made.uses)
        if kind is None:
            made.notes.append(KIND_UNKNOWN(uses=made.uses))
        if made.runs is not False:
            places = places_of(kind) if kind is not None else any_place
            keeps = kind.keeps_texts if kind is not None else False
            config = await work.configuration(places, keep_texts=keeps)
            made.config = _shown(config)
            if kind is not None and not work.incomplete:
                work.check(kind.config_model)
            self._put_output(work, config, propagates=kind is None or kind.propagates_output)
        if made.uses == _SETS_METADATA and made.runs is not False:
            self.setter = made.alias
        status = StepStatus.SKIPPED if made.runs is False else StepStatus.SUCCEEDED
        meta = StepExecutionMetadata(alias=made.alias, status=status, continue_on_error=step.continue_on_error)
        for name in _WHEN_RUN:
            self.unknown["stepMetas", made.alias, name] = RUN_UNKNOWN(what=f"stepMetas[{made.alias!r}].{name}")
        before = self._promotion.status
        metas = (*before.step_execution_metadata, meta)
        self._promotion = self._promotion.replace(status=before.replace(step_execution_metadata=metas))
        return made

    def _put_output(self, work: _Work, config: Any, *, propagates: bool) -> None:
        """Let the later steps know the output of this one, or that nobody knows it."""
        alias = work.made.alias
        given = self.setting.outputs.get(alias)
        task = alias.rpartition(SEPARATOR)[0]
        homes = [alias, task] if propagates and task else [alias]
        if given is None and (work.made.uses != _COMPOSE or not isinstance(config, dict)):
            for home in homes:
                self.unknown["outputs", home] = OUTPUT_UNKNOWN(alias=alias)
            return
        try:
            output = checked_output(alias, given if given is not None else config)
        except OutputError as error:
            work.fault(("config",), str(error))
            return
        if given is None:
            for path, why in work.missing.items():
                names = [str(part) for part in path]
                for home in homes:
                    self.unknown["outputs", home, *names] = why
        status = with_output(self._promotion.status, alias, output, propagates=propagates)
        self._promotion = self._promotion.replace(status=status)

    @property
    def program(self) -> Program:
        setting = self.setting
        return program_of(self._promotion, freight=setting.freight, ui_base_url=setting.ui_base_url or "")

    def add(self, fault: Fault) -> None:
        self._faults[fault] = None


class _Work:
    """One step."""

    def __init__(self, all_: _Rendering, index: int, position: Position, made: RenderedStep) -> None:
        self.made = made
        self.missing: dict[Path, str] = {}
        """Places in the configuration that could not be evaluated."""
        self.incomplete = False
        self._all = all_
        self._index = index
        self._position = position
        self._program = all_.program
        self._unknown = dict(all_.unknown)
        self._lookups = Lookups(all_.secrets)
        self._scope: Scope | None = None
        self._task = position.alias.rpartition(SEPARATOR)[0]

    def fault(self, where: Path, text: str) -> None:
        self.incomplete = True
        self._all.add(Fault(self._index, where, text))

    def check(self, model: type[Config]) -> None:
        """Tell what the kind of step would not take."""
        try:
            for path, text in config_faults(model, self.made.config, (), evaluated=True):
                self.fault(("config", *path), text)
        except Uncheckable as error:
            self.fault(("config",), str(error))

    async def variables(self) -> None:
        """Evaluate those of the Promotion, then those of the step."""
        program, position, now = self._program, self._position, self._all.setting.now
        functions = promotion_functions(program.freight, self._lookups)
        lookups = self._lookups
        before = Scope(environment(program.context, alias=position.alias), functions, now, lookups)
        values: dict[str, Value] = {}
        common = await self._evaluated(program.variables, before, values, of_step=False)
        self.made.common = {name: _shown(value) for name, value in values.items()}
        here = environment(
            program.context, alias=position.alias, variables=values, outputs=position.outputs, steps=position.before
        )
        own = await self._evaluated(
            position.step.vars,
            Scope(here, functions, now, lookups),
            values,
            of_step=True,
        )
        self.made.own = {variable.name: _shown(values[variable.name]) for variable in position.step.vars}
        everything = {**functions, **status_functions(position.alias, position.before)}
        here = with_variables(here, values)
        self._scope = Scope(here, everything, now, lookups)
        self._program = Program(program.context, program.freight, common)
        step = position.step.replace(vars=own)
        self._position = Position(position.alias, step, position.outputs, position.before)

    async def _evaluated(
        self, variables: Sequence[ExpressionVariable], scope: Scope, values: dict[str, Value], *, of_step: bool
    ) -> list[ExpressionVariable]:
        """Put the values of *variables* into *values*; gives back *variables*, without those that have none."""
        kept: list[ExpressionVariable] = []
        for number, variable in enumerate(variables):
            where: Path = ("vars", number) if of_step else (number,)
            why = self._why_not(variable.value)  # it may read what had its name before it
            self._unknown = {path: why for path, why in self._unknown.items() if path[:2] != ("vars", variable.name)}
            try:
                if why is None:
                    values |= await self._known(_thunk(variable, scope, dict(values)))
                    kept.append(variable)
                    continue
                self._note(f"vars.{variable.name}", why, of_step=of_step)
            except NotKnown as error:
                why = str(error)
                self._note(f"vars.{variable.name}", why, of_step=of_step)
            except (VariableError, ExpressionError, TooManyLookups, LookupRefused) as error:
                self.fault(where, str(error))
                why = VARIABLE_FAULTY(name=variable.name)
            values[variable.name] = f"{MARK}{variable.value}"
            self._unknown["vars", variable.name] = why
        return kept

    async def runs(self) -> bool | None:
        """What becomes of ``if``."""
        source = self._position.step.if_
        if not source:
            return True
        try:
            why = self._why_not(source)
            if why is None:
                program, position, now = self._program, self._position, self._all.setting.now
                return await self._known(lambda: condition(program, position, self._lookups, now))
        except NotKnown as error:
            why = str(error)
        except (EvaluationError, LookupRefused) as error:
            self.fault(("if",), str(error))
            return None
        self._note("if", why)
        self.made.notes.append(IF_UNKNOWN())
        return None

    async def configuration(self, places: Places, *, keep_texts: bool) -> Any:
        """The configuration, with a mark where it could not be evaluated."""
        config = self._position.step.config
        values = {path: await self._template(path, text, places, keep_texts) for path, text in templates_in(config)}
        return _with(config, values) if values else config

    async def _template(self, path: Path, source: str, places: Places, keep_texts: bool) -> Any:
        is_string = places(path)
        scope = self._scope
        assert scope is not None  # noqa: S101  (variables come first)
        try:
            why = self._why_not(source)
            if why is None:
                return await self._known(lambda: render_all(source, scope, lambda _: is_string, keep_text=keep_texts))
        except NotKnown as error:
            why = str(error)
        except ConfigurationError as error:
            self.fault(("config", *path), str(error.problems[0][1]))
            return f"{MARK}{source}"
        except (TooManyLookups, LookupRefused) as error:
            self.fault(("config", *path), str(error))
            return f"{MARK}{source}"
        self.missing[path] = why
        self.incomplete = True
        self._note(_dotted(("config", *path)), why)
        return f"{MARK}{source}"

    def _note(self, path: str, why: str, *, of_step: bool = True) -> None:
        notes, text = self.made.notes if of_step else self._all.notes, NOT_EVALUATED(path=path, why=why)
        if text not in notes:
            notes.append(text)

    async def _known(self, evaluate: Callable[[], T]) -> T:
        """The value of *evaluate*, with what it reads; raises NotKnown if that is nowhere."""
        return await resolved(evaluate, self._lookups, self._read)

    async def _read(self, lookup: Lookup) -> Mapping[str, Any] | None:
        setting = self._all.setting
        if lookup.source in {Source.SHARED_CONFIG_MAP, Source.SHARED_SECRET} and not setting.shared_namespace:
            raise NotKnown(SHARED_UNKNOWN())
        if lookup.source in _METADATA and (alias := self._all.setter):
            raise NotKnown(METADATA_UNKNOWN(source=lookup.source.value, name=lookup.shown, alias=alias))
        return await setting.reader.read(setting.promotion.namespace, lookup)

    def _why_not(self, source: str) -> str | None:
        """Why a template cannot be evaluated here; None if it can, or cannot be read."""
        try:
            template = parse_template(source)
        except ExpressionError:
            return None
        for expression in template.expressions:
            found = uses(expression.tree)
            for read in found.reads:
                if why := self._missing_for(read):
                    return why
            if self._all.setting.freight is None and any(call.name in _FROM_FREIGHT for call in found.calls):
                return self._unknown["ctx", "targetFreight", "origin"]
        return None

    def _missing_for(self, read: Read) -> str | None:
        path = read.path
        if path[:2] == ("task", "outputs"):
            within = f"{self._task}{SEPARATOR}"
            if len(path) == 2:
                inner = [name for name in self._unknown if name[0] == "outputs" and name[1].startswith(within)]
                return self._unknown[inner[0]] if inner else None
            path = ("outputs", f"{within}{path[2]}", *path[3:])
        for known, why in self._unknown.items():
            if known[: len(path)] == path or path[: len(known)] == known:
                return why
        return None


def _thunk(variable: ExpressionVariable, scope: Scope, values: dict[str, Value]) -> Callable[[], dict[str, Value]]:
    return lambda: evaluate_variables([variable], scope, values)


def _unknown_context(setting: Setting) -> Reasons:
    """What of ``ctx`` nobody knows before the Promotion is there."""
    reasons: Reasons = {}
    promotion = setting.promotion
    if setting.freight is None:
        name = promotion.spec.freight or ""
        why = IN_NO_FILE(kind="Freight", name=name) if name else RUN_UNKNOWN(what="ctx.targetFreight")
        reasons["ctx", "targetFreight", "alias"] = reasons["ctx", "targetFreight", "origin"] = why
        if not name:
            reasons["ctx", "targetFreight", "name"] = why
    if setting.ui_base_url is None:
        reasons["ctx", "uiBaseUrl"] = URL_UNKNOWN()
    if not promotion.name:
        reasons["ctx", "promotion"] = RUN_UNKNOWN(what="ctx.promotion")
    if not promotion.namespace:
        reasons["ctx", "project"] = RUN_UNKNOWN(what="ctx.project")
    return reasons


def _shown(value: Any) -> Any:
    """*value* as JSON has it: whole numbers without a point; of a guess the text, where a number would not give it."""
    if isinstance(value, Guess):
        guess = value.value
        return value.text if isinstance(guess, float) and format_json_float(guess) != value.text else _shown(guess)
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXPONENTIAL:
        return int(value)
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value


def _with(value: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    """*value* with what stands in *values* in its places."""
    if path in values:
        return values[path]
    if isinstance(value, dict):
        return {name: _with(item, values, (*path, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_with(item, values, (*path, index)) for index, item in enumerate(value)]
    return value


def _dotted(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
