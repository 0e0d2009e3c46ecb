"""``kargo-py get``: Promotions and Stages as a table, as JSON or YAML, once or as they change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import yaml

from kargo_py.api.promotion import PromotionPhase, phase_of
from kargo_py.api.types import JsonObject
from kargo_py.cli.following import News, following
from kargo_py.cli.forms import form_of
from kargo_py.cli.main import USAGE_ERROR, fail
from kargo_py.cli.objects import NO_SUCH_OBJECT, Session, Where, connected, read, read_all, run
from kargo_py.cli.rows import (
    DELETED,
    PROMOTION_COLUMNS,
    STAGE_COLUMNS,
    Column,
    Row,
    Surroundings,
    aliases,
    aspect,
    identity,
    places,
    promotion_row,
    shown,
    stage_row,
    text,
)
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, drop_managed_fields
from kargo_py.kube.cache import Cache
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Forbidden, NotFound
from kargo_py.kube.resources import Resource
from kargo_py.messages import Shown, message

PHASE_NOT_KNOWN = message(
    "--phase {phase!r}: must be one of {known}",
    do="Correct `--phase`.",
    shown=Shown.COMMAND_LINE,
)
OF_PROMOTIONS_ONLY = message(
    "{option} is for Promotions only",
    do="Leave the option out, or get `promotions`.",
    shown=Shown.COMMAND_LINE,
)
NAME_IN_ALL = message(
    "a name cannot be looked for in all namespaces; give -n NAMESPACE in the place of -A",
    do="Give the namespace, or leave the name out.",
    shown=Shown.COMMAND_LINE,
)
NONE_FOUND = message(
    "no {resource} found{where}",
    do="Nothing to do, or correct the namespace (`-n`, `-A`), `--stage` or `--phase`.",
    shown=Shown.COMMAND_LINE,
)

FORMS: Final = ("table", "wide", "json", "yaml", "name")
_TABLES: Final = frozenset({"table", "wide"})
_GAP: Final = "   "

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; ``every``: in all namespaces. ``phases`` empty: all."""

    resource: Resource
    name: str = ""
    every: bool = False
    watch: bool = False
    form: str = "table"
    stage: str = ""
    phases: frozenset[str] = frozenset()

    def takes(self, raw: JsonObject) -> bool:
        """Whether *raw* is among what is asked for."""
        if self.name and identity(raw)[1] != self.name:
            return False
        if self.stage and text(raw, "spec", "stage") != self.stage:
            return False
        return not self.phases or phase_of(raw) in self.phases


def check(request: Request) -> Request:
    """*request* with its words in their proper case; what makes no sense ends it all."""
    form = form_of(request.form, FORMS)
    phases = {phase.lower(): phase.value for phase in PromotionPhase}
    for phase in request.phases:
        if phase.lower() not in phases:
            fail(PHASE_NOT_KNOWN(phase=phase, known=", ".join(PromotionPhase)), code=USAGE_ERROR)
    if request.resource is not PROMOTIONS and (request.stage or request.phases):
        fail(OF_PROMOTIONS_ONLY(option="--stage" if request.stage else "--phase"), code=USAGE_ERROR)
    if request.name and request.every:
        fail(NAME_IN_ALL(), code=USAGE_ERROR)
    chosen = frozenset(phases[phase.lower()] for phase in request.phases)
    return Request(request.resource, request.name, request.every, request.watch, form, request.stage, chosen)


def get(request: Request, where: Where, out: Print, tell: Print) -> None:
    """Print what is asked for; *tell* is for what is no part of it."""

    async def work() -> None:
        async with connected(where) as session:
            await (watch if request.watch else once)(request, session, out, tell)

    run(work(), request.resource)


async def once(request: Request, session: Session, out: Print, tell: Print) -> None:
    """Print what there is now. Raises KubeError."""
    namespace = "" if request.every else session.namespace
    if request.name:
        every = [await read(session, request.resource, request.name)]
    else:
        every = await read_all(session.client, request.resource, namespace)
    wanted = sorted(filter(request.takes, every), key=identity)
    if not wanted and request.form not in {"json", "yaml"}:
        tell(NONE_FOUND(resource=request.resource.plural, where="" if request.every else f' in "{namespace}"'))
        return
    if request.form not in _TABLES:
        for piece in documents(wanted, request, alone=bool(request.name and wanted)):
            out(piece)
        return
    if request.resource is PROMOTIONS and request.name and phase_of(wanted[0]) == PromotionPhase.PENDING:
        every = await _if_allowed(session, PROMOTIONS, namespace) or every
    near = Surroundings(
        aliases(await _if_allowed(session, FREIGHTS, namespace) or ()),
        places(every) if request.resource is PROMOTIONS else {},
    )
    table = Table(request)
    for line in table.lines([(raw, table.row(raw, near, utc_now())) for raw in wanted]):
        out(line)


async def watch(request: Request, session: Session, out: Print, tell: Print) -> None:
    """Print what there is, and from then on what changes. Raises KubeError if that cannot begin."""
    namespace = "" if request.every else session.namespace
    followed = _cache(session, request.resource, namespace)
    freights = _cache(session, FREIGHTS, namespace)
    caches = [followed]
    if request.form in _TABLES and await _if_allowed(session, FREIGHTS, namespace) is not None:
        caches.append(freights)
    news, changes = News(), Changes()
    async with following(*caches):
        if request.name and not any(map(request.takes, followed.values())):
            fail(NO_SUCH_OBJECT(kind=request.resource.kind, name=request.name, namespace=namespace))
        for cache in caches:
            news.of(cache, changes.note if cache is followed else _nothing)
        table = Table(request)
        if not any(map(request.takes, followed.values())):
            tell(NONE_FOUND(resource=request.resource.plural, where="" if request.every else f' in "{namespace}"'))
        while True:
            await news.wait()
            changed, gone = changes.taken()
            if request.form in _TABLES:
                every = followed.values()
                near = Surroundings(aliases(freights.values()), places(every) if request.resource is PROMOTIONS else {})
                lines: Iterable[str] = table.lines(table.news(every, gone, near, utc_now()))
            else:
                lines = documents(sorted(filter(request.takes, [*changed, *gone]), key=identity), request, alone=True)
            for line in lines:
                out(line)


def _nothing(_old: object, _new: object) -> None:
    """What makes rows look different is looked up when they are made."""


def _cache(session: Session, resource: Resource, namespace: str) -> Cache[JsonObject]:
    return Cache(session.client, resource, codec=JSON, namespace=namespace, projection=drop_managed_fields)


async def _if_allowed(session: Session, resource: Resource, namespace: str) -> list[JsonObject] | None:
    """What there is of *resource*; None where it may not be read, so that the rest is shown without it."""
    try:
        return await read_all(session.client, resource, namespace)
    except (Forbidden, NotFound):
        return None


@dataclass(slots=True)
class Changes:
    """What has changed since it was last taken."""

    _changed: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    _gone: list[JsonObject] = field(default_factory=list)

    def note(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """A change, as caches tell them."""
        if new is not None:
            self._changed[identity(new)] = new
        elif old is not None:
            self._changed.pop(identity(old), None)
            self._gone.append(old)

    def taken(self) -> tuple[Sequence[JsonObject], Sequence[JsonObject]]:
        """What has changed, and what is gone."""
        changed, gone = list(self._changed.values()), self._gone
        self._changed, self._gone = {}, []
        return changed, gone


def documents(objects: Sequence[JsonObject], request: Request, *, alone: bool) -> Iterable[str]:
    """*objects* as JSON, YAML or names; as kubectl does, several as one List unless each stands *alone*."""
    if request.form == "name":
        group = f".{request.resource.group}"
        return [f"{request.resource.kind.lower()}{group}/{identity(raw)[1]}" for raw in objects]
    bare = [drop_managed_fields(raw) for raw in objects]
    whole: list[JsonObject] = bare if alone else [{"apiVersion": "v1", "items": bare, "kind": "List", "metadata": {}}]
    if request.form == "json":
        return [json.dumps(each, indent=4, ensure_ascii=False) for each in whole]
    mark = "---\n" if request.watch else ""
    return [mark + yaml.safe_dump(each, sort_keys=False, allow_unicode=True).rstrip("\n") for each in whole]


class Table:
    """A table that may grow: its columns stay where they are as long as what comes fits."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._wide = request.form == "wide"
        promotions = request.resource is PROMOTIONS
        self._columns: Sequence[Column] = PROMOTION_COLUMNS if promotions else STAGE_COLUMNS
        self._row = promotion_row if promotions else stage_row
        self._shown: dict[tuple[str, str], Row] = {}
        self._widths: list[int] = []

    def row(self, raw: JsonObject, near: Surroundings, now: datetime) -> Row:
        """The cells of *raw*."""
        return self._row(raw, near, now)

    def news(
        self, objects: Iterable[JsonObject], gone: Iterable[JsonObject], near: Surroundings, now: datetime
    ) -> list[tuple[JsonObject, Row]]:
        """The rows that are new, look different from what was last shown, or are of objects that are gone.

        A row that was shown is shown once more when it is none of those asked for any longer.
        """
        gone = [raw for raw in gone if self._shown.pop(identity(raw), None) is not None]
        fresh = [(raw, (*self._row(raw, near, now)[:-1], DELETED())) for raw in gone]
        for raw in sorted(objects, key=identity):
            key = identity(raw)
            wanted = self._request.takes(raw)
            if not wanted and key not in self._shown:
                continue
            row = self._row(raw, near, now)
            looks = aspect(self._columns, row)
            if self._shown.get(key) != looks:
                fresh.append((raw, row))
            if wanted:
                self._shown[key] = looks
            else:
                del self._shown[key]
        return fresh

    def lines(self, rows: Sequence[tuple[JsonObject, Row]]) -> list[str]:
        """*rows* as lines, below a head the first time."""
        cells = [self._cells(identity(raw)[0], shown(self._columns, row, wide=self._wide)) for raw, row in rows]
        if not cells:
            return []
        if not self._widths:
            head = self._cells("NAMESPACE", [c.title for c in self._columns if self._wide or not c.wide])
            cells.insert(0, head)
            self._widths = [0] * len(head)
        self._widths = [
            max(width, *map(len, column)) for width, column in zip(self._widths, zip(*cells, strict=True), strict=True)
        ]
        return [
            _GAP.join(cell.ljust(width) for cell, width in zip(line, self._widths, strict=True)).rstrip()
            for line in cells
        ]

    def _cells(self, namespace: str, cells: Sequence[str]) -> list[str]:
        return [namespace, *cells] if self._request.every else list(cells)
