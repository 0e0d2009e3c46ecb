"""What there is to see of the cluster at one moment: rows for a table, and lines for what has changed in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from kargo_py.demo.acts import at
from kargo_py.kube.client import JsonObject


@dataclass(frozen=True, slots=True)
class StageRow:
    """A Stage."""

    name: str
    freight: str
    health: str
    verified: str
    """The Freight that was verified here."""


@dataclass(frozen=True, slots=True)
class PromotionRow:
    """A Promotion."""

    name: str
    freight: str
    phase: str
    message: str


@dataclass(frozen=True, slots=True)
class ApplicationRow:
    """An Argo CD Application; ``operation`` is the phase of its last one."""

    name: str
    sync: str
    health: str
    operation: str
    message: str


Row: TypeAlias = StageRow | PromotionRow | ApplicationRow


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    stages: Sequence[StageRow] = ()
    promotions: Sequence[PromotionRow] = ()
    applications: Sequence[ApplicationRow] = ()

    @property
    def rows(self) -> Iterator[Row]:
        """Every row, Applications first: they change before what depends on them."""
        yield from self.applications
        yield from self.promotions
        yield from self.stages


def picture(
    stages: Sequence[JsonObject],
    promotions: Sequence[JsonObject],
    freights: Sequence[JsonObject],
    applications: Sequence[JsonObject],
    order: Sequence[str],
) -> Picture:
    """What the objects show; *order* has the names of the story's Stages. What a spectator has made comes last."""

    def rank(obj: JsonObject) -> tuple[int, str]:
        name = name_of(obj)
        stage = name.rpartition("-")[2]
        return order.index(stage) if stage in order else len(order), name

    return Picture(
        [_stage(stage, freights) for stage in sorted(stages, key=rank)],
        [
            _promotion(one)
            for one in sorted(promotions, key=lambda one: (one["metadata"]["creationTimestamp"], name_of(one)))
        ],
        [_application(app) for app in sorted(applications, key=rank)],
    )


def changes(old: Picture, new: Picture) -> Iterator[str]:
    """A line for each row that is new or different."""
    before = {(type(row), row.name): row for row in old.rows}
    for row in new.rows:
        if before.get((type(row), row.name)) != row:
            kind = type(row).__name__.removesuffix("Row").lower()
            shown = [part for field in fields(row) if field.name != "name" and (part := str(getattr(row, field.name)))]
            if shown:
                yield f"{kind} {row.name}: {', '.join(shown)}"


def name_of(obj: JsonObject) -> str:
    """The object's name."""
    return str(obj["metadata"]["name"])


def _text(obj: JsonObject, *path: str) -> str:
    return str(at(obj, path) or "")


def _stage(stage: JsonObject, freights: Sequence[JsonObject]) -> StageRow:
    name = name_of(stage)
    verified = sorted(name_of(freight) for freight in freights if at(freight, ("status", "verifiedIn", name)))
    return StageRow(
        name,
        _text(stage, "status", "freightSummary"),
        _text(stage, "status", "health", "status"),
        f"verified {', '.join(verified)}" if verified else "",
    )


def _promotion(promotion: JsonObject) -> PromotionRow:
    steps: list[Any] = at(promotion, ("status", "stepExecutionMetadata")) or []
    waiting = str(steps[-1].get("message") or "") if steps else ""
    message = _text(promotion, "status", "message") or waiting
    return PromotionRow(
        name_of(promotion), _text(promotion, "spec", "freight"), _text(promotion, "status", "phase"), message
    )


def _application(app: JsonObject) -> ApplicationRow:
    state = ("status", "operationState")
    return ApplicationRow(
        name_of(app),
        _text(app, "status", "sync", "status"),
        _text(app, "status", "health", "status"),
        _text(app, *state, "phase"),
        _text(app, *state, "message"),
    )
