"""The Events that the controllers tell: what they say, and under which name.

Kargo's reasons, messages and annotations, so that what consumes Kargo's Events consumes these. A name is made of what
is told, so the same thing told twice, after a crash say, is one Event. All of it is plain functions over values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kargo_py.api.freight import Freight, FreightReference
from kargo_py.api.names import (
    ANNOTATION_CREATE_ACTOR,
    ANNOTATION_ROLLBACK,
    LABEL_ALIAS,
    EventAnnotation as Field,
)
from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.stage import Stage
from kargo_py.api.types import Model, Time
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS
from kargo_py.deployers.base import Record, TargetState, WaitCause
from kargo_py.engine.records import newly_ended, operations_of
from kargo_py.kube.events import Event, Regarding, event_name
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE

CREATED = message(
    'Promotion created for Stage "{stage}" by "{actor}"',
    do="Nothing; with `--created-events` only.",
    shown=Shown.EVENT,
)
REASON_CREATED = message(
    "PromotionCreated",
    do="Normal, on a Promotion that was seen for the first time; only with `--created-events`.",
    shown=Shown.EVENT,
)
ENDED = message(
    "Promotion {phase}",
    do="The end of a Promotion; its `status.message` follows, where it has one, and says what to do.",
    shown=Shown.EVENT,
)
REASON_ENDED = message(
    "Promotion{phase}",
    do="On a Promotion: `PromotionSucceeded` and `PromotionAborted` are of type Normal, `PromotionFailed` and "
    "`PromotionErrored` of type Warning.",
    shown=Shown.EVENT,
)
STAGE_NOT_FOUND = message(
    'Stage "{stage}" does not exist in namespace "{namespace}"; the Promotion waits for it',
    do="The Promotion begins by itself once the Stage is there. Create the Stage, or delete the Promotion.",
    shown=Shown.PROMOTION | Shown.EVENT,
)
REASON_STAGE_NOT_FOUND = message(
    "StageNotFound",
    do="Warning on a Promotion whose Stage is not there. It waits: create the Stage, or delete the Promotion.",
    shown=Shown.EVENT,
)
REASON_ABORT_NOT_UNDERSTOOD = message(
    "AbortNotUnderstood",
    do="Warning on a Promotion with a wrong annotation `kargo.akuity.io/abort`. It goes on: correct the annotation.",
    shown=Shown.EVENT,
)
REASON_STEP_WARNING = message(
    "StepWarning",
    do="Warning on a Promotion that goes on: a step has left out something that may have been meant, the message says "
    "what.",
    shown=Shown.EVENT,
)
STEP_WARNING = message(
    'step "{alias}" goes on: {message}',
    do="What follows the name of the step says what to do.",
    shown=Shown.EVENT,
)
REASON_STEPS_REPLACED = message(
    "StepsReplaced",
    do="Warning on a Promotion whose steps or variables were not those of its Stage, and were replaced by them. Leave "
    "them out; or allow others with the annotation `kargo-py.io/custom-steps: allow` on the Stage.",
    shown=Shown.EVENT,
)
REASON_ADMISSION_WARNING = message(
    "AdmissionWarning",
    do="Warning on a Promotion that goes on: something in its steps, or in the Stage's template, may not be what was "
    "meant.",
    shown=Shown.EVENT,
)
FREIGHT_VERIFIED = message(
    'Freight was verified in Stage "{stage}"',
    do="The Freight may be promoted to the Stages downstream now, once it has soaked where they require it.",
    shown=Shown.EVENT,
)
REASON_FREIGHT_VERIFIED = message(
    "FreightVerificationSucceeded",
    do="Normal, on Freight that has become verified in a Stage. Nothing to do.",
    shown=Shown.EVENT,
)

OPERATION_REQUESTED = message(
    "{target}: operation requested, attempt {attempt}",
    do="Nothing; with `--operation-events` only.",
    shown=Shown.EVENT,
)
OPERATION_PICKED_UP = message(
    "{target}: operation picked up, attempt {attempt}",
    do="Nothing; with `--operation-events` only.",
    shown=Shown.EVENT,
)
OPERATION_TERMINATED = message(
    "{target}: operation terminated, attempt {attempt}: {message}",
    do="An abort or a time-out ended it, as it should. With `--operation-events` only.",
    shown=Shown.EVENT,
)
REASON_OPERATION_REQUESTED = message(
    "OperationRequested",
    do="Normal, on a Promotion that has started something; only with `--operation-events`.",
    shown=Shown.EVENT,
)
REASON_OPERATION_PICKED_UP = message(
    "OperationPickedUp",
    do="Normal, on a Promotion: the other controller has begun; only with `--operation-events`.",
    shown=Shown.EVENT,
)
REASON_OPERATION_WAITING = message(
    "OperationWaiting",
    do="Normal, on a Promotion that something holds up; the message says what. Only with `--operation-events`.",
    shown=Shown.EVENT,
)
REASON_OPERATION_TERMINATED = message(
    "OperationTerminated",
    do="Normal, on a Promotion whose abort or time-out has ended an operation; only with `--operation-events`.",
    shown=Shown.EVENT,
)

PROMOTION_CONTROLLER = "controller:promotion-controller"
STAGE_CONTROLLER = "controller:stage-controller"

MOST_JSON = 16 * 1024
"""Bytes of an annotation that holds JSON; an API server takes 256 KiB for all annotations of an object."""

_MOST_TEXT = 1024

_NORMAL = frozenset({PromotionPhase.SUCCEEDED, PromotionPhase.ABORTED})


# -- annotations -----------------------------------------------------------------------------------------------------


def bounded_json(items: Sequence[Mapping[str, Any]], most: int = MOST_JSON) -> str:
    """*items* as a JSON list of at most *most* bytes: whole items only, the first that fit; "" if none does."""
    kept: list[str] = []
    size = 2
    for item in items:
        text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        size += len(text.encode()) + (1 if kept else 0)
        if size > most:
            break
        kept.append(text)
    return f"[{','.join(kept)}]" if kept else ""


def _annotations(values: Mapping[Field, object]) -> dict[str, str]:
    """In the form of Kubernetes; what is not known is left out."""
    return {field.value: str(value) for field, value in values.items() if value}


def _freight_annotations(reference: FreightReference, freight: Freight | None) -> dict[Field, object]:
    """What Kargo tells of Freight: its content as it was promoted, and of the object what the content lacks."""
    of_object: dict[Field, object] = {}
    if freight is not None:
        of_object = {
            Field.FREIGHT_ALIAS: freight.alias or freight.metadata.labels.get(LABEL_ALIAS),
            Field.FREIGHT_CREATE_TIME: freight.metadata.creation_timestamp,
        }
    return {
        Field.FREIGHT_NAME: reference.name,
        **of_object,
        Field.FREIGHT_WAREHOUSE_NAME: reference.origin.name if reference.origin is not None else "",
        Field.FREIGHT_COMMITS: _content(reference.commits),
        Field.FREIGHT_IMAGES: _content(reference.images),
        Field.FREIGHT_CHARTS: _content(reference.charts),
        Field.FREIGHT_ARTIFACTS: _content(reference.artifacts),
    }


def _content(artifacts: Sequence[Model]) -> str:
    return bounded_json([artifact.wire() for artifact in artifacts])


def applications_of(promotion: Promotion, default_namespace: str) -> list[Key]:
    """The Applications that *promotion* acted on, or was to act on where nothing is on record."""
    recorded = [record.key for record in operations_of(promotion)]
    return list(dict.fromkeys(recorded or _configured(promotion, default_namespace)))


def _configured(promotion: Promotion, default_namespace: str) -> Iterable[Key]:
    for step in promotion.spec.steps or ():
        apps = step.config.get("apps") if step.uses == ARGOCD_UPDATE and isinstance(step.config, dict) else None
        for app in apps if isinstance(apps, list) else ():
            match app:
                case {"name": str(name), **more} if name:
                    space = more.get("namespace")
                    yield Key(space if isinstance(space, str) and space else default_namespace, name)


def promotion_annotations(
    promotion: Promotion, freight: Freight | None, default_namespace: str, *, verification_pending: bool | None = None
) -> dict[str, str]:
    """All that Kargo tells of a Promotion; *freight* None: it is gone, and the record in the Promotion has to do.

    Whoever created the Promotion counts as the actor, rather than we.
    """
    reference = promotion.status.freight
    if reference is None:
        reference = freight.reference() if freight is not None else FreightReference(name=promotion.spec.freight or "")
    # In the form of Go's types.NamespacedName, which has no names for JSON.
    apps = [{"Namespace": key.namespace, "Name": key.name} for key in applications_of(promotion, default_namespace)]
    return _annotations(
        {
            Field.ACTOR: _actor(promotion),
            Field.PROJECT: promotion.namespace,
            Field.PROMOTION_NAME: promotion.name,
            Field.PROMOTION_CREATE_TIME: promotion.metadata.creation_timestamp,
            Field.STAGE_NAME: promotion.spec.stage,
            **_freight_annotations(reference, freight),
            Field.APPLICATIONS: bounded_json(apps),
            Field.VERIFICATION_PENDING: "" if verification_pending is None else str(verification_pending).lower(),
            Field.ROLLBACK: "true" if promotion.metadata.annotations.get(ANNOTATION_ROLLBACK) == "true" else "",
        }
    )


def _actor(promotion: Promotion) -> str:
    return promotion.metadata.annotations.get(ANNOTATION_CREATE_ACTOR, "")[:_MOST_TEXT] or PROMOTION_CONTROLLER


# -- on a Promotion --------------------------------------------------------------------------------------------------


def about_promotion(
    promotion: Promotion,
    reason: str,
    said: str,
    *distinct: str,
    type: str = "Normal",  # noqa: A002 - the field's own name
    annotations: Mapping[str, str] | None = None,
) -> Event:
    """An Event on *promotion*: one for each reason, and *distinct*."""
    uid = promotion.metadata.uid
    return Event(
        Regarding(PROMOTIONS, Key(promotion.namespace, promotion.name), uid),
        event_name(promotion.name, reason, uid, *distinct),
        reason,
        said,
        type=type,
        annotations=annotations or {},
    )


def ended_event(promotion: Promotion, freight: Freight | None, stage: Stage | None, default_namespace: str) -> Event:
    """That *promotion* has ended; *stage* None: it is gone."""
    phase, said = promotion.status.phase, promotion.status.message
    pending = stage.spec.verification is not None if stage is not None and phase == PromotionPhase.SUCCEEDED else None
    return about_promotion(
        promotion,
        REASON_ENDED(phase=phase),
        ENDED(phase=phase) + (f": {said}" if said else ""),
        type="Normal" if phase in _NORMAL else "Warning",
        annotations=promotion_annotations(promotion, freight, default_namespace, verification_pending=pending),
    )


def ended_event_name(promotion: Promotion) -> str:
    """The name of :func:`ended_event`."""
    return event_name(promotion.name, REASON_ENDED(phase=promotion.status.phase), promotion.metadata.uid)


def created_event(promotion: Promotion, freight: Freight | None, default_namespace: str) -> Event:
    """That *promotion* is there; Kargo's webhook tells it, where there is one."""
    said = CREATED(stage=promotion.spec.stage, actor=_actor(promotion))
    annotations = promotion_annotations(promotion, freight, default_namespace)
    return about_promotion(promotion, REASON_CREATED(), said, annotations=annotations)


def no_stage_event(promotion: Promotion) -> Event:
    """That the Stage of *promotion* is not there."""
    said = STAGE_NOT_FOUND(stage=promotion.spec.stage, namespace=promotion.namespace)
    return about_promotion(promotion, REASON_STAGE_NOT_FOUND(), said, type="Warning")


def abort_not_understood_event(promotion: Promotion, why: str) -> Event:
    """That the annotation to abort asks for nothing that is known."""
    return about_promotion(promotion, REASON_ABORT_NOT_UNDERSTOOD(), why, type="Warning")


def step_warning_event(promotion: Promotion, alias: str, why: str) -> Event:
    """That the step *alias* goes on though something about it may not be as it was meant."""
    said = STEP_WARNING(alias=alias, message=why)
    return about_promotion(promotion, REASON_STEP_WARNING(), said, alias, type="Warning")


def steps_replaced_event(promotion: Promotion, how: str) -> Event:
    """That the steps that its author wrote were replaced by those of the Stage."""
    return about_promotion(promotion, REASON_STEPS_REPLACED(), how, how, type="Warning")


def admission_warning_event(promotion: Promotion, warnings: str) -> Event:
    """That something in the steps may not be what was meant."""
    return about_promotion(promotion, REASON_ADMISSION_WARNING(), warnings, type="Warning")


def operation_news(
    promotion: Promotion, records: Iterable[Record], causes: Mapping[Key, WaitCause], said: str
) -> Iterator[Event]:
    """What is to be told of operations that are waited for: each thing once for each attempt on each target."""
    for record in records:
        cause = causes.get(record.key)
        if record.state.final or cause is None:
            continue
        if cause not in {WaitCause.FOREIGN, WaitCause.OTHER}:
            yield _requested(promotion, record)
        if cause in _PICKED_UP:
            picked_up = OPERATION_PICKED_UP(target=record.key, attempt=record.attempt)
            yield about_promotion(promotion, REASON_OPERATION_PICKED_UP(), picked_up, str(record.key), record.stamp)
        if cause in _HELD_UP:
            yield about_promotion(promotion, REASON_OPERATION_WAITING(), said, str(record.key), record.stamp, cause)


def ends_of_operations(before: Promotion, after: Promotion) -> Iterator[Event]:
    """What is to be told of the operations that *after* says have ended: what was terminated, and what came before."""
    for record in newly_ended(before, after):
        if record.state not in _NEVER_BEGUN:
            yield _requested(after, record)
        if record.state is TargetState.STOPPED:
            said = OPERATION_TERMINATED(target=record.key, attempt=record.attempt, message=record.message)
            yield about_promotion(after, REASON_OPERATION_TERMINATED(), said, str(record.key), record.stamp)


_PICKED_UP = frozenset({WaitCause.RUNNING, WaitCause.HELD_UP, WaitCause.WINDOW, WaitCause.STOPPING})
_HELD_UP = frozenset({WaitCause.FOREIGN, WaitCause.HELD_UP, WaitCause.WINDOW, WaitCause.ASLEEP})
_NEVER_BEGUN = frozenset({TargetState.NOT_STARTED, TargetState.REFUSED, TargetState.LOST})


def _requested(promotion: Promotion, record: Record) -> Event:
    said = OPERATION_REQUESTED(target=record.key, attempt=record.attempt)
    return about_promotion(promotion, REASON_OPERATION_REQUESTED(), said, str(record.key), record.stamp)


# -- on Freight ------------------------------------------------------------------------------------------------------


def verified_event(
    freight: Freight, stage: Stage, identity: str, *, at: Time | None, started: Time | None = None, promotion: str = ""
) -> Event:
    """That *freight*, which *promotion* brought, was verified in *stage*; *identity* names the verification."""
    reason = REASON_FREIGHT_VERIFIED()
    return Event(
        Regarding(FREIGHTS, Key(freight.namespace, freight.name), freight.metadata.uid),
        event_name(freight.name, reason, identity),
        reason,
        FREIGHT_VERIFIED(stage=stage.name),
        annotations=_annotations(
            {
                Field.ACTOR: STAGE_CONTROLLER,
                Field.PROJECT: stage.namespace,
                Field.STAGE_NAME: stage.name,
                Field.PROMOTION_NAME: promotion,
                **_freight_annotations(freight.reference(), freight),
                Field.VERIFICATION_START_TIME: started or at,
                Field.VERIFICATION_FINISH_TIME: at,
            }
        ),
    )
