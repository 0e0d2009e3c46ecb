"""``kargo-py lint``: what is wrong with manifests in files, as lines for people, as JSON, or as annotations in CI."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import typer

from kargo_py.cli.crds import SOURCES_MISSING
from kargo_py.cli.findings import text
from kargo_py.cli.forms import form_of
from kargo_py.cli.main import CANNOT_RUN, USAGE_ERROR, fail
from kargo_py.messages import Shown, message
from kargo_py.offline.files import load
from kargo_py.offline.findings import Finding, Level, Place
from kargo_py.offline.lint import Verdict, lint
from kargo_py.steps.registry import KindError, installed_kinds

FAIL_ON_UNKNOWN = message(
    "--fail-on {level!r}: must be error or warning",
    do="Correct `--fail-on`.",
    shown=Shown.COMMAND_LINE,
)
SUMMARY = message(
    "{errors} and {warnings} in {objects} of {files}{rest}",
    do="On standard error, so that the findings can be piped alone.",
    shown=Shown.LINT,
)
SKIPPED = message(
    "; {objects} of other kinds not looked at",
    do="Part of a text: `lint` judges what is of Kargo's group, and leaves all else in the files alone.",
    shown=Shown.LINT,
)
UNREADABLE = message(
    "; {files} in folders, without a word of Kargo, not readable as YAML",
    do="Part of a text: such files, like templates of Helm, are told only where they are named on the command line.",
    shown=Shown.LINT,
)

FORMS: Final = ("text", "json", "github")
_GITHUB: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to judge, and how to say it."""

    form: str = "text"
    strict: bool = False
    fail_on: Level = Level.ERROR


def check(form: str, fail_on: str, *, strict: bool) -> Options:
    """The options in their proper case; what makes no sense ends it all."""
    form = form_of(form, FORMS)
    levels = {level.word: level for level in (Level.ERROR, Level.WARNING)}
    if fail_on.lower() not in levels:
        fail(FAIL_ON_UNKNOWN(level=fail_on), code=USAGE_ERROR)
    return Options(form, strict, levels[fail_on.lower()])


def run(names: Sequence[str], options: Options, out: Print, tell: Print) -> None:
    """Judge the files of *names*; ends with code 1 if anything is as bad as ``fail_on``."""
    try:
        kinds = installed_kinds()
    except KindError as error:
        fail(str(error))
    files = list(load(names))
    try:
        verdict = lint(files, kinds, strict=options.strict)
    except OSError as error:
        fail(SOURCES_MISSING(why=error))
    for line in lines(verdict.findings, options.form):
        out(line)
    tell(summary(verdict))
    if any(finding.level <= options.fail_on for finding in verdict.findings):
        raise typer.Exit(CANNOT_RUN)


def lines(findings: Sequence[Finding], form: str) -> list[str]:
    """*findings* in that form."""
    match form:
        case "json":
            return [json.dumps([_wire(finding) for finding in findings], indent=2, ensure_ascii=False)]
        case "github":
            return [_annotation(finding) for finding in findings]
        case _:
            return [text(finding) for finding in findings]


def _wire(finding: Finding) -> dict[str, str | int]:
    return {
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "level": finding.level.word,
        "object": finding.object,
        "path": finding.path,
        "message": finding.text,
    }


def _annotation(finding: Finding) -> str:
    """As GitHub's runners read it; what is in it cannot begin another command."""
    place: Place = finding.place
    said = f"{finding.path}: {finding.text}" if finding.path else finding.text
    fields = {"file": place.file, "title": f"kargo-py: {finding.object}" if finding.object else "kargo-py"}
    if place.line:
        fields |= {"line": str(place.line), "col": str(place.column)}
    properties = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in fields.items())
    return f"::{_GITHUB[finding.level]} {properties}::{_escaped(said)}"


def _escaped(value: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        value = value.replace(character, f"%{ord(character):02X}")
    return value


def summary(verdict: Verdict) -> str:
    """How many there are of everything."""
    rest = SKIPPED(objects=_count(verdict.skipped, "object")) if verdict.skipped else ""
    if verdict.unreadable:
        rest += UNREADABLE(files=_count(verdict.unreadable, "file"))
    counts = [sum(finding.level is level for finding in verdict.findings) for level in (Level.ERROR, Level.WARNING)]
    return SUMMARY(
        errors=_count(counts[0], "error"),
        warnings=_count(counts[1], "warning"),
        objects=_count(verdict.objects, "object"),
        files=_count(verdict.files, "file"),
        rest=rest,
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
