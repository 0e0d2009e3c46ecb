"""``kargo-py steps`` and ``kargo-py explain``: the kinds of steps there are, and what their configuration may be."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kargo_py.api.types import Duration, JsonObject
from kargo_py.cli.main import USAGE_ERROR, fail
from kargo_py.messages import Shown, message
from kargo_py.steps.registry import Found, Kind
from kargo_py.steps.schema import documented, in_words, innermost

NO_SUCH_KIND = message(
    "there is no kind of step {uses!r}{meant}; kargo-py steps shows those there are",
    do="Correct the name, or install the package that brings this kind where the command runs.",
    shown=Shown.COMMAND_LINE,
)
NO_SUCH_FIELD = message(
    "{where} has no field {name!r}{meant}; it has: {known}",
    do="Correct the path: names as in the step's `config`, with `.` between them.",
    shown=Shown.COMMAND_LINE,
)
NO_FIELDS = message(
    "{where} has no fields, it is: {form}",
    do="The path goes too far: leave its last part out.",
    shown=Shown.COMMAND_LINE,
)
DID_YOU_MEAN = message(
    " (did you mean {names}?)",
    do="Part of a text above: names that look like the one given.",
    shown=Shown.COMMAND_LINE,
)
CANNOT_DESCRIBE = message(
    "the form of the configuration of {uses} cannot be shown: {why}",
    do="Something in the model of this kind cannot be put into JSON schema. Ask whoever wrote the package.",
    shown=Shown.COMMAND_LINE,
)

LIST_FORMS: Final = ("table", "wide", "json", "yaml", "name")
TEXT_FORMS: Final = ("text", "json", "yaml")
OURS: Final = "kargo-py"
_WIDTH: Final = 100
_GAP: Final = "   "
_SUMMARY: Final = 80
_MOST_NAMES: Final = 12


# -- steps -----------------------------------------------------------------------------------------------------------


def listing(found: Found, form: str) -> str:
    """All kinds, in one of :data:`LIST_FORMS`."""
    entries = [entry(uses, found) for uses in sorted(found.kinds)]
    if form == "name":
        return "\n".join(each["name"] for each in entries)
    if form in {"json", "yaml"}:
        unusable = [{"name": each.uses, "package": each.package, "why": each.why} for each in found.unusable]
        return document({"steps": entries, **({"unusable": unusable} if unusable else {})}, form)
    columns = [*_COLUMNS[:-1], *(_WIDE if form == "wide" else ()), _COLUMNS[-1]]
    lines = [[title for title, _ in columns], *([str(each[key]) for _, key in columns] for each in entries)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if form != "wide":
        lines = [[*line[:-1], textwrap.shorten(line[-1], _SUMMARY, placeholder=" …")] for line in lines]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


_COLUMNS: Final = (
    ("NAME", "name"),
    ("PACKAGE", "package"),
    ("TIMEOUT", "timeout"),
    ("ERRORS", "errorThreshold"),
    ("SUMMARY", "summary"),
)
_WIDE: Final = (("WORK", "work"), ("WORKDIR", "workDir"), ("CLASS", "class"))


def entry(uses: str, found: Found) -> JsonObject:
    """What is told of one kind."""
    kind = found.kinds[uses]
    return {
        "name": uses,
        "package": found.packages.get(uses, OURS),
        "timeout": time_limit(kind),
        "errorThreshold": kind.default_error_threshold,
        "work": kind.work.value,
        "workDir": kind.work_dir_use.value,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "summary": summary(kind),
    }


def time_limit(kind: Kind) -> str:
    """The time that such a step has unless it says otherwise."""
    return Duration.of(kind.default_timeout.total_seconds()) if kind.default_timeout is not None else "none"


def description(kind: Kind) -> str:
    """The docstring of the class, its own: not that of what it is derived from."""
    return plain(inspect.cleandoc(kind.__doc__ or ""))


def summary(kind: Kind) -> str:
    """The first paragraph of its documentation, on one line."""
    return " ".join(description(kind).partition("\n\n")[0].split())


def plain(text: str) -> str:
    """*text* without the marks of reStructuredText."""
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text.replace("``", "`"))


def document(made: JsonObject, form: str) -> str:
    """*made* as JSON or YAML."""
    if form == "json":
        return json.dumps(made, indent=4, ensure_ascii=False, default=str)
    # Through JSON: YAML would write what Python has and JSON has not, and anchors.
    return yaml.safe_dump(json.loads(json.dumps(made, default=str)), sort_keys=False, allow_unicode=True).rstrip("\n")


# -- explain ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A field within the configuration of a kind, or all of it where ``path`` is empty."""

    uses: str
    path: Sequence[str]
    schema: JsonObject
    required: bool = False

    @property
    def shown(self) -> str:
        """As it is written on the command line."""
        return ".".join([self.uses, *self.path])


def explanation(asked: str, found: Found, form: str, *, recursive: bool = False) -> str:
    """What there is to know of ``STEP[.FIELD...]``; one that does not exist ends it all."""
    uses, *path = asked.split(".")
    kind = found.kinds.get(uses)
    if kind is None:
        if (broken := next((each for each in found.unusable if each.uses == uses), None)) is not None:
            fail(str(broken))
        fail(NO_SUCH_KIND(uses=_cut(uses), meant=_meant(uses, found.kinds)), code=USAGE_ERROR)
    try:
        schema = documented(kind.config_model)
    except (Exception, RecursionError) as error:  # noqa: BLE001 - it is about a model of somebody else's
        fail(CANNOT_DESCRIBE(uses=uses, why=f"{type(error).__name__}: {error}"))
    place = _found(Place(uses, (), schema), path)
    if form == "text":
        return "\n".join(_lines(place, found, recursive=recursive))
    about = entry(uses, found) if not place.path else {"name": uses, "field": ".".join(place.path)}
    about |= {"required": place.required} if place.path else {"description": description(kind)}
    return document({**about, "schema": place.schema}, form)


def _found(place: Place, path: Sequence[str]) -> Place:
    for index, part in enumerate(path):
        name = re.sub(r"\[[^\]]*\]", "", part)
        if not name and part:
            continue
        children, required = _children(place.schema)
        if index == 0 and name == "config" and name not in children:
            # As messages about the configuration name it.
            continue
        if not children:
            fail(NO_FIELDS(where=place.shown, form=in_words(place.schema)), code=USAGE_ERROR)
        if name not in children:
            known = ", ".join(children)
            meant = _meant(name, children)
            fail(NO_SUCH_FIELD(where=place.shown, name=_cut(name), meant=meant, known=known), code=USAGE_ERROR)
        place = Place(place.uses, [*place.path, name], children[name], name in required)
    return place


def _children(schema: JsonObject) -> tuple[Mapping[str, JsonObject], frozenset[str]]:
    """The fields of what *schema*, its items or values are, and which of them are required."""
    inner = innermost(schema)
    choices = [each for word in ("anyOf", "oneOf") for each in inner.get(word, ())]
    if not choices:
        return inner.get("properties", {}), frozenset(inner.get("required", ()))
    found: dict[str, JsonObject] = {}
    for choice in choices:
        for name, field in _children(choice)[0].items():
            found.setdefault(name, field)
    return found, frozenset()


def _meant(name: str, known: Mapping[str, Any]) -> str:
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower()[:_SUMMARY], by_case, n=3)
    return DID_YOU_MEAN(names=" or ".join(by_case[each] for each in close)) if close else ""


def _cut(text: str) -> str:
    return text if len(text) <= _SUMMARY else f"{text[:_SUMMARY]}…"


def _lines(place: Place, found: Found, *, recursive: bool) -> Iterator[str]:
    kind = found.kinds[place.uses]
    yield f"STEP:      {place.uses}"
    if place.path:
        marks = _marks(place.schema, required=place.required)
        yield f"FIELD:     {'.'.join(place.path)} <{in_words(place.schema)}>{marks}"
        said = plain(place.schema.get("description", ""))
    else:
        yield f"PACKAGE:   {found.packages.get(place.uses, OURS)}"
        yield f"TIMEOUT:   {time_limit(kind)}; retry.timeout of the step sets another"
        yield f"ERRORS:    {kind.default_error_threshold} in a row; retry.errorThreshold of the step sets another"
        said = description(kind)
    if said:
        yield ""
        yield from _wrapped(said, "")
    if (
        not place.path
        and not _children(place.schema)[0]
        and (free := plain(inspect.cleandoc(kind.config_model.__doc__ or "")))
    ):
        # Their names are free.
        yield ""
        yield "FIELDS:"
        yield from _wrapped(free, "  ")
    if _children(place.schema)[0]:
        yield ""
        yield "FIELDS:"
        yield from _fields(place.schema, "  ", recursive=recursive)


def _fields(schema: JsonObject, indent: str, *, recursive: bool) -> Iterator[str]:
    children, required = _children(schema)
    for name, inner in children.items():
        yield f"{indent}{name} <{in_words(inner)}>{_marks(inner, required=name in required)}"
        if recursive:
            yield from _fields(inner, f"{indent}  ", recursive=True)
        elif said := plain(inner.get("description", "")):
            yield from _wrapped(said, f"{indent}  ")


def _marks(schema: JsonObject, *, required: bool) -> str:
    if required:
        return " -required-"
    default = schema.get("default")
    # An empty one says no more than that it may be left out.
    return "" if default in (None, {}, [], "") else f" -default: {json.dumps(default, default=str)}-"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ""
        yield from textwrap.wrap(
            " ".join(paragraph.split()), _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
