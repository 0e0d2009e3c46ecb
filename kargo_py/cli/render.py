"""``kargo-py render``: what the steps of a Promotion in a file would be called with. Nothing is run or written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from kargo_py.api.types import JsonObject
from kargo_py.cli.findings import text
from kargo_py.cli.main import CANNOT_RUN, INTERRUPTED, USAGE_ERROR, fail
from kargo_py.cli.objects import Where, connected, reason
from kargo_py.controllers.lookups import LookupReader
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.engine.problems import Place
from kargo_py.kube.clock import utc_now
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.offline.assembling import Assembled, CannotAssemble, assemble
from kargo_py.offline.files import File, load
from kargo_py.offline.findings import Finding, Level, Place as FilePlace, ordered
from kargo_py.offline.manifests import Manifest, manifests
from kargo_py.offline.render import Fault, Rendered, RenderedStep, Setting, render
from kargo_py.offline.shelf import Shelf
from kargo_py.steps.registry import KindError, Kinds, installed_kinds

NO_PROMOTION = message(
    "there is no Promotion in the files; give one with -f",
    do="Write one with `spec.stage` and `spec.freight`, and no steps: those of the Stage are taken.",
    shown=Shown.COMMAND_LINE,
)
OUTPUT_MALFORMED = message(
    "--step-output {given!r}: must be ALIAS=JSON or ALIAS=@FILE with an object",
    do='Write for example `--step-output \'update={{"commit": "abc"}}\'`.',
    shown=Shown.COMMAND_LINE,
)
OUTPUT_OF_NO_STEP = message(
    "--step-output: no step has the alias {alias!r}; there are {known}",
    do="Correct the alias; that of a step of a task has the task's before it, as in `deploy::update`.",
    shown=Shown.COMMAND_LINE,
)
OUTPUT_UNREADABLE = message(
    "--step-output {alias}: {why}",
    do="Correct the file, which is to hold an object as JSON.",
    shown=Shown.COMMAND_LINE,
)
CANNOT_RENDER = message(
    "what is rendered has problems, which stand above: {count}",
    do="Correct them where they are written; the steps that have none are rendered all the same.",
    shown=Shown.LINT,
)

FORMS: Final = ("yaml", "json")

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for; ``live``: read from this cluster what no file has."""

    form: str = "yaml"
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    live: bool = False
    where: Where = field(default_factory=Where)
    shared_namespace: str = ""
    ui_base_url: str | None = None


def read_outputs(given: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The outputs of ``ALIAS=JSON``; what is none ends it all."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in given:
        alias, equals, value = one.partition("=")
        if not alias or not equals:
            fail(OUTPUT_MALFORMED(given=one[:80]), code=USAGE_ERROR)
        try:
            output = json.loads(Path(value[1:]).read_text("utf-8") if value.startswith("@") else value)
        except OSError as error:
            fail(OUTPUT_UNREADABLE(alias=alias, why=error.strerror or error), code=USAGE_ERROR)
        except (ValueError, RecursionError) as error:
            fail(OUTPUT_UNREADABLE(alias=alias, why=error), code=USAGE_ERROR)
        if not isinstance(output, dict):
            fail(OUTPUT_MALFORMED(given=one[:80]), code=USAGE_ERROR)
        found[alias] = output
    return found


def run(names: Sequence[str], options: Options, out: Print, tell: Print) -> None:
    """Render each Promotion in the files; ends with code 1 if a step cannot be rendered."""
    try:
        kinds = installed_kinds()
    except KindError as error:
        fail(str(error))
    files = list(load(names))
    findings = _unreadable(files)
    everything = list(manifests(files))
    promotions = [one for one in everything if one.is_kargos and one.kind == "Promotion"]
    if not promotions and not findings:
        fail(NO_PROMOTION(), code=USAGE_ERROR)
    try:
        asyncio.run(_all(promotions, everything, kinds, options, out, findings))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except KubeError as error:
        _tell_all(findings, tell)
        fail(reason(error, PROMOTIONS))
    told = _tell_all(findings, tell)
    errors = sum(finding.level is Level.ERROR for finding in told)
    if errors:
        tell(CANNOT_RENDER(count=errors))
        raise typer.Exit(CANNOT_RUN)


def _tell_all(findings: Sequence[Finding], tell: Print) -> list[Finding]:
    told = ordered(findings)
    for finding in told:
        tell(text(finding))
    return told


def _unreadable(files: Sequence[File]) -> list[Finding]:
    found = [finding for file in files for finding in file.findings]
    for file in files:
        for document in file.documents:
            if document.broken:
                found += [
                    Finding(FilePlace(file.name, fault.line, fault.column), fault.level, "", fault.text)
                    for fault in document.faults
                ]
    return found


async def _all(
    promotions: Sequence[Manifest],
    everything: Sequence[Manifest],
    kinds: Kinds,
    options: Options,
    out: Print,
    findings: list[Finding],
) -> None:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(connected(options.where)) if options.live else None
        namespace = session.namespace if session is not None else options.where.namespace
        now = utc_now()
        shelf = Shelf(everything, session.client if session is not None else None)
        reader = LookupReader(shelf.as_client(), options.shared_namespace)
        found: list[Assembled] = []
        for manifest in promotions:
            try:
                found.append(await assemble(manifest, namespace, shelf, kinds, now))
            except CannotAssemble as error:
                findings += error.findings
        if len(found) == len(promotions):
            _check_aliases(found, options.outputs)
        for assembled in found:
            setting = Setting(
                promotion=assembled.promotion,
                freight=assembled.freight,
                collection=assembled.collection,
                requested=assembled.requested,
                kinds=kinds,
                reader=reader,
                now=now,
                outputs=options.outputs,
                ui_base_url=options.ui_base_url,
                shared_namespace=options.shared_namespace,
            )
            rendered = await render(setting)
            out(written(document(assembled, rendered), options.form))
            findings += [_finding(fault, assembled) for fault in rendered.faults]


def _check_aliases(found: Sequence[Assembled], outputs: Mapping[str, object]) -> None:
    known = list(dict.fromkeys(step.alias(index) for one in found for index, step in enumerate(one.draft.steps)))
    for alias in outputs:
        if alias not in known:
            fail(OUTPUT_OF_NO_STEP(alias=alias, known=", ".join(known)), code=USAGE_ERROR)


def _finding(fault: Fault, assembled: Assembled) -> Finding:
    """*fault* where it is written."""
    origin = assembled.draft.origins[fault.step]
    match fault.where:
        case (int(number),):
            manifest, path = assembled.variables[number]
            if manifest is not None:
                return manifest.finding(path, fault.text)
            place = Place(path)
        case ("vars", int(number)):
            place = origin.variables[number].below("value")
        case path:
            place = origin.step.below(*path)
    return assembled.places.finding(place, fault.text)


def document(assembled: Assembled, rendered: Rendered) -> JsonObject:
    """What is printed of a Promotion."""
    promotion = assembled.promotion
    head: JsonObject = {
        "promotion": promotion.name or None,
        "project": promotion.namespace or None,
        "stage": promotion.spec.stage,
        "freight": assembled.freight.name if assembled.freight is not None else promotion.spec.freight,
    }
    notes = list(dict.fromkeys([*assembled.notes, *rendered.notes]))
    made = {name: value for name, value in head.items() if value is not None}
    common = rendered.steps[0].common if rendered.steps else {}
    if common:
        made["vars"] = common
    made["steps"] = [_step(step, common) for step in rendered.steps]
    return made | ({"notes": notes} if notes else {})


def _step(step: RenderedStep, common: JsonObject) -> JsonObject:
    """A step; of the Promotion's variables only what is not *common* to all steps."""
    made: JsonObject = {"as": step.alias, "uses": step.uses}
    if step.runs is not True:
        made["runs"] = step.runs if step.runs is not None else "unknown"
    variables = {name: value for name, value in step.common.items() if common.get(name) != value} | step.own
    if variables:
        made["vars"] = variables
    if step.runs is not False:
        made["config"] = step.config
    if step.notes:
        made["notes"] = step.notes
    return made


class _Dumper(yaml.CSafeDumper):
    """Writes every value out, and texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_of(dumper: yaml.CSafeDumper, data: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text_of)


def written(document: JsonObject, form: str) -> str:
    """*document* as YAML or JSON, without the line break at its end."""
    if form == "json":
        return json.dumps(document, indent=2, ensure_ascii=False)
    return "---\n" + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True).rstrip("\n")
