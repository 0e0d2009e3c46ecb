"""What wakes a Promotion: which events concern which Promotion. Plain functions over the old and the new object."""

from __future__ import annotations

from collections.abc import Iterable

from kargo_py.api.promotion import PromotionPhase, phase_of
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.argocd.operation import operation_aspect
from kargo_py.argocd.waiting import news
from kargo_py.controllers.stage_queue import current_name
from kargo_py.kube.codec import JSON
from kargo_py.kube.predicates import Predicate, changed, created, deleted
from kargo_py.kube.resources import Key


def itself(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """The changed object; one that is gone, too, so that what is kept of it is dropped."""
    found = new if new is not None else old
    return (JSON.meta(found).key,) if found is not None else ()


def own_news() -> Predicate[JsonObject]:
    """A Promotion new to us (after a restart: one that runs), gone, or whose annotations or labels changed.

    Not its status: that is written by us alone, and each write is followed up where it is made.
    """
    return (
        created()
        | deleted()
        | changed(
            lambda p: tuple(
                p["metadata"].get(name) for name in ("annotations", "labels", "generation", "deletionTimestamp")
            )
        )
    )


def acknowledged() -> Predicate[JsonObject]:
    """The Stage names a current Promotion, and it or what decides whose Stage it is has changed."""
    return Predicate(lambda old, new: new is not None and current_name(new) != "" and _call(old) != _call(new))


def acknowledged_promotion(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """The Promotion that the Stage names."""
    name = current_name(new)
    return (Key(new["metadata"]["namespace"], name),) if new is not None and name else ()


def stage_readable() -> Predicate[JsonObject]:
    """A Stage that came into being, or was corrected."""
    return created() | changed(lambda stage: stage["metadata"].get("generation"))


def has_not_begun(promotion: JsonObject) -> bool:
    """A Promotion in a queue; what it says of its Stage may not be true any more, or just be on its way."""
    return phase_of(promotion) == PromotionPhase.PENDING


def verdict_news() -> Predicate[Application]:
    """Anything that the step argocd-wait looks at; of interest only to a Promotion that is in such a step."""
    return changed(news)


def newly_chosen() -> Predicate[Application]:
    """An Application that was made, or whose labels are others now: a selector may match it that did not."""
    return created() | changed(lambda app: app.metadata.labels)


def operation_news() -> Predicate[Application]:
    """Anything that a decision about an operation rests on; refreshes, health and the like do not pass."""
    return changed(operation_aspect) | created() | deleted()


def _call(stage: JsonObject | None) -> object:
    if stage is None:
        return None
    meta = stage["metadata"]
    return (current_name(stage), meta.get("labels"), meta.get("generation"))
