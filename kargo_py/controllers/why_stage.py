"""Why a Stage is not Ready, what is there since when, and what Promotions do there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kargo_py.api.meta import Condition
from kargo_py.api.promotion import PromotionPhase
from kargo_py.api.stage import HealthState, Stage, VerificationPhase
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.health import Verdict, assess_application
from kargo_py.controllers.stage import CHECKS_NOT_KNOWN, KIND_OF_CHECK_NOT_KNOWN
from kargo_py.controllers.stage_conditions import LAST_ENDED_AS
from kargo_py.controllers.stage_health import checks
from kargo_py.controllers.stage_template import TEMPLATE_VALID
from kargo_py.controllers.stage_verification import (
    VERIFICATION_UNSUPPORTED,
    VERIFIED_ONCE_HEALTHY,
    latest_verification,
)
from kargo_py.controllers.why import (
    IS_BEING_DELETED,
    NOTHING_HAPPENS,
    STILL_NAMED,
    Answer,
    Explanation,
    Hidden,
    Seen,
    Statement,
    called,
    freight_model,
    model_of,
    of_shard,
    queued,
    quiet_for,
    text_at,
)
from kargo_py.deployers.argocd_health import check_targets
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import USES as ARGOCD_UPDATE

ONLY_PASSES_ON = message(
    "it has no steps: it only passes Freight on, and nothing is promoted to it",
    do="Give it `spec.promotionTemplate` with steps if something should be promoted to it.",
    shown=Shown.ANSWER,
)
NOT_LOOKED_AT = message(
    "no controller has looked at it yet",
    do="A controller that runs does at once. With shards, that of the Stage's shard must run.",
    shown=Shown.ANSWER,
)
CHANGED_SINCE = message(
    "its spec was changed, and no controller has looked at it since",
    do="A controller that runs does at once; what follows is about the spec before. With shards, that of the Stage's "
    "shard must run.",
    shown=Shown.ANSWER,
)
CONDITION_SAYS = message(
    "{reason}: {message}",
    do="The reason and the message of its condition `Ready`; look them up under [In a Stage](#in-a-stage).",
    shown=Shown.ANSWER,
)
PROMOTION_RUNS = message(
    'Promotion "{promotion}" runs; kargo-py why promotion {promotion} says what it waits for',
    do="The Stage is judged again once it has ended.",
    shown=Shown.ANSWER,
)
PROMOTIONS_WAIT = message(
    '{count} more in the queue, the next one is "{promotion}"',
    do="The Promotions of a Stage run one after another, in the order in which they were created.",
    shown=Shown.ANSWER,
)
LAST_ENDED_SAYING = message(
    'Promotion "{promotion}" ended as {phase}: {message}',
    do="The last Promotion to this Stage, and its message. `Ready` comes back with the next one that succeeds.",
    shown=Shown.ANSWER,
)
LAST_ENDED_MORE = message(
    "{message} … (kargo-py why promotion {promotion} has the rest)",
    do="Part of the text above: the message goes on.",
    shown=Shown.ANSWER,
)
IS_HERE = message(
    "Freight {freight} of {origin} is here",
    do="What was promoted here last, and since when.",
    shown=Shown.ANSWER,
)
NOTHING_FROM = message(
    "nothing of {origin} was promoted here yet",
    do="Create a Promotion with Freight of that origin.",
    shown=Shown.ANSWER,
)
VERIFIED_HERE = message(
    "what is here is verified",
    do="It may go on to the Stages downstream, once it has soaked where they require it.",
    shown=Shown.ANSWER,
)
VERIFICATION_IS = message(
    "the verification of what is here is {phase}{why}",
    do="The latest entry of `verificationHistory` of what is in the Stage. Look at its AnalysisRun if it has one.",
    shown=Shown.ANSWER,
)
APP_IS_HEALTHY = message(
    "{app} is healthy, at what was promoted",
    do="Nothing to do.",
    shown=Shown.ANSWER,
)
NO_VERDICT_YET = message(
    "{issue}; no verdict on it can be trusted before",
    do="The Stage is judged by itself when Argo CD has looked at the Application; look the first part up under "
    "[In a Stage](#in-a-stage).",
    shown=Shown.ANSWER,
)
CHECK_NOT_READ = message(
    "a health check of the Stage cannot be read: {why}",
    do="`status.health.config` of the Stage was edited, or written by another program. Promote again.",
    shown=Shown.ANSWER,
)
HEALTH_IS_KEPT = message(
    "its health is {health}, as it was last judged",
    do="What `status.health` says. While no verdict can be trusted, it stays as it was.",
    shown=Shown.ANSWER,
)

_MOST_APPLICATIONS = 20


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What was read. ``freights`` by name: at least those of :func:`freights`; ``applications`` of :func:`targets`."""

    stage: JsonObject
    promotions: Sequence[JsonObject] | Hidden
    freights: Mapping[str, Seen[JsonObject]]
    applications: Mapping[Key, Seen[Application]]
    now: datetime
    argocd_namespace: str = "argocd"


@dataclass(frozen=True, slots=True)
class _Check:
    """One Application with the revisions it is held to."""

    key: Key
    desired: Sequence[str]


def targets(stage: JsonObject, argocd_namespace: str) -> Sequence[Key]:
    """The Applications that *stage* is judged by, the first few of them."""
    model = model_of(Stage, stage)
    found, _ = _checks(model, argocd_namespace) if isinstance(model, Stage) else ((), ())
    return list(dict.fromkeys(check.key for check in found))


def freights(stage: JsonObject) -> Sequence[str]:
    """The names of the Freight that is in *stage*."""
    model = model_of(Stage, stage)
    current = model.current_freight if isinstance(model, Stage) else None
    return current.names if current is not None else ()


def explain_stage(facts: StageFacts) -> Explanation:
    """The answer."""
    raw = facts.stage
    namespace, name = text_at(raw, "metadata", "namespace"), text_at(raw, "metadata", "name")
    stage = model_of(Stage, raw)
    if isinstance(stage, str):
        return Explanation("Stage", namespace, name, "Unknown", reasons=[Statement(stage)])
    finding = _Finding(facts, stage)
    finding.give()
    ready = _condition(stage, "Ready")
    since = (ready.last_transition_time if ready is not None else stage.metadata.creation_timestamp) or ""
    state = "not judged" if ready is None else "Ready" if ready.status == "True" else "not Ready"
    return Explanation("Stage", namespace, name, state, since, finding.answer.reasons, finding.answer.unseen)


@dataclass(slots=True)
class _Finding:
    """An answer in the making."""

    facts: StageFacts
    stage: Stage
    answer: Answer = field(default_factory=Answer)

    def give(self) -> None:
        """Find out everything."""
        stage = self.stage
        if stage.metadata.deletion_timestamp:
            self.answer.say(IS_BEING_DELETED(), stage.metadata.deletion_timestamp)
        if stage.is_control_flow:
            self.answer.say(ONLY_PASSES_ON())
            return
        self._looked_at()
        ready = _condition(stage, "Ready")
        if ready is not None and ready.status != "True":
            reason, said = ready.reason or ready.status, ready.message
            valid = _condition(stage, TEMPLATE_VALID)
            if valid is not None and valid.reason == reason:
                # It has them all; there is no room for that in each condition.
                said = valid.message
            self.answer.say(CONDITION_SAYS(reason=reason, message=said) if said else reason, ready.last_transition_time)
        self._promotions()
        self._freight()
        self._health()
        self._verification()

    def _looked_at(self) -> None:
        """Whether a controller knows the Stage as it is."""
        status, metadata = self.stage.status, self.stage.metadata
        if not status.observed_generation and not status.conditions:
            self.answer.say(NOT_LOOKED_AT(), metadata.creation_timestamp)
            if (quiet := quiet_for(metadata.creation_timestamp, self.facts.now)) is not None:
                self.answer.say(NOTHING_HAPPENS(time=quiet, whose=of_shard(self.stage)))
        elif status.observed_generation and status.observed_generation < metadata.generation:
            self.answer.say(CHANGED_SINCE())

    def _promotions(self) -> None:
        """What runs, what waits, and how the last one ended."""
        status = self.stage.status
        current, last = status.current_promotion, status.last_promotion
        seen = self.facts.promotions
        waiting = [] if isinstance(seen, Hidden) else queued(seen, self.stage.name)
        if isinstance(seen, Hidden):
            self.answer.hidden("the queue", seen)
        if current is not None:
            running = next((p for p in waiting if text_at(p, "metadata", "name") == current.name), None)
            if running is None and not isinstance(seen, Hidden):
                self.answer.say(STILL_NAMED(stage=self.stage.name, other=current.name))
            else:
                self.answer.say(PROMOTION_RUNS(promotion=current.name), text_at(running, "status", "startedAt"))
            waiting = [p for p in waiting if p is not running]
        if waiting:
            self.answer.say(PROMOTIONS_WAIT(count=len(waiting), promotion=text_at(waiting[0], "metadata", "name")))
        if last is None or last.status is None or last.status.phase == PromotionPhase.SUCCEEDED:
            return
        phase, said = last.status.phase, last.status.message
        ready = _condition(self.stage, "Ready")
        if said and (ready is None or said != ready.message):
            first, *others = said.split("\n")
            message = LAST_ENDED_MORE(message=first, promotion=last.name) if others else first
            self.answer.tell(LAST_ENDED_SAYING(promotion=last.name, phase=phase, message=message), last.finished_at)
        else:
            self.answer.tell(LAST_ENDED_AS(promotion=last.name, phase=phase), last.finished_at)

    def _freight(self) -> None:
        """What is here, since when, and what is missing."""
        current = self.stage.current_freight
        items = current.items if current is not None else {}
        for origin, reference in items.items():
            seen = self.facts.freights.get(reference.name)
            if isinstance(seen, Hidden):
                self.answer.hidden(f'Freight "{reference.name}"', seen)
            freight = freight_model(seen)
            here = freight.status.currently_in.get(self.stage.name) if freight is not None else None
            since = here.since if here is not None else None
            self.answer.say(IS_HERE(freight=called(reference.name, seen), origin=origin), since)
        for origin in self.stage.origins:
            if origin not in items:
                self.answer.say(NOTHING_FROM(origin=origin))

    def _health(self) -> None:
        """How each Application is, by the verdict that the Stage is judged by."""
        stage = self.stage
        if not stage.status.freight_history:
            return
        found, faults = _checks(stage, self.facts.argocd_namespace)
        for fault in faults:
            self.answer.say(fault)
        trusted = True
        for check in found:
            seen = self.facts.applications.get(check.key)
            if isinstance(seen, Hidden):
                self.answer.hidden(describe(check.key), seen)
                continue
            verdict = assess_application(seen, check.key, check.desired, math.inf)
            trusted = trusted and verdict.trusted
            self._tell_verdict(check.key, verdict)
        health = stage.status.health
        if health is not None and (self.answer.unseen or not trusted):
            self.answer.say(HEALTH_IS_KEPT(health=health.status or HealthState.UNKNOWN))
            for issue in health.issues:
                if all(statement.text != issue for statement in self.answer.reasons):
                    self.answer.say(issue)

    def _tell_verdict(self, key: Key, verdict: Verdict) -> None:
        if verdict.state is HealthState.HEALTHY and not verdict.issues:
            self.answer.say(APP_IS_HEALTHY(app=describe(key)))
        for issue in verdict.issues:
            self.answer.say(issue if verdict.trusted else NO_VERDICT_YET(issue=issue))

    def _verification(self) -> None:
        """Whether what is here is verified, and what is missing."""
        current = self.stage.current_freight
        if current is None:
            return
        latest = latest_verification(current)
        verified = _condition(self.stage, "Verified")
        since = verified.last_transition_time if verified is not None else None
        if latest is not None and latest.phase == VerificationPhase.SUCCESSFUL:
            self.answer.say(VERIFIED_HERE(), latest.finish_time)
        elif latest is not None:
            said = latest.message or (latest.analysis_run.name if latest.analysis_run is not None else "")
            why = f": {said}" if said else ""
            self.answer.say(VERIFICATION_IS(phase=latest.phase, why=why), latest.finish_time or latest.start_time)
        elif self.stage.spec.verification is not None:
            self.answer.say(VERIFICATION_UNSUPPORTED(), since)
        else:
            self.answer.say(VERIFIED_ONCE_HEALTHY(), since)


def _condition(stage: Stage, type_: str) -> Condition | None:
    return next((condition for condition in stage.status.conditions if condition.type == type_), None)


def _checks(stage: Stage, argocd_namespace: str) -> tuple[Sequence[_Check], Sequence[str]]:
    """The Applications that the Stage is judged by, the first few of them; and what of the checks cannot be read."""
    held = checks(stage.status)
    if held is None:
        return (), [CHECKS_NOT_KNOWN()] if stage.status.freight_history else []
    found: list[_Check] = []
    faults = []
    for check in held:
        config: Any = check.config
        if check.uses != ARGOCD_UPDATE:
            faults.append(KIND_OF_CHECK_NOT_KNOWN(uses=check.uses))
            continue
        try:
            named = check_targets(config if isinstance(config, dict) else {}, argocd_namespace)
        except ValueError as error:
            faults.append(CHECK_NOT_READ(why=error))
            continue
        found += [_Check(key, wanted.desired) for key, wanted in named]
    return found[:_MOST_APPLICATIONS], faults
