"""The step ``argocd-update``: edits the sources of Argo CD Applications, syncs them, and ends when the syncs have.

The configuration is Kargo's. Entries that name one Application several times are merged into one start; entries that
contradict each other are refused. All Applications are checked before any is started; each start then stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.api.stamp import StampError, make_stamp
from kargo_py.api.types import wire_name
from kargo_py.argocd.application import describe
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate
from kargo_py.deployers.argocd import ArgoCD, Origin, TargetError, UpdateRequest, check_config
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.errors import Forbidden, Invalid, KubeError
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Finished, Intend, StepContext, StepOutcome, Waiting

USES = "argocd-update"

_ALL_MESSAGES = 64 * 1024
_LEAST_MESSAGE = 200
_SHOWN = 3


class _Config(BaseModel):
    """Configuration is checked strictly: a field that nothing reads is a mistake somebody should hear of."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=wire_name)


NonEmpty = Annotated[str, Field(min_length=1)]


class KustomizeImageConfig(_Config):
    """An image for ``kustomize.images``; exactly one of tag and digest."""

    repo_url: NonEmpty
    tag: str = ""
    digest: str = ""
    new_name: str = ""

    @model_validator(mode="after")
    def _one_version(self) -> Self:
        if bool(self.tag) == bool(self.digest):
            raise ValueError("exactly one of tag and digest must be given")
        return self


class KustomizeConfig(_Config):
    """Edits of a source's Kustomize options."""

    images: Annotated[Sequence[KustomizeImageConfig], Field(min_length=1)]


class HelmImageConfig(_Config):
    """A Helm parameter to set."""

    key: NonEmpty
    value: NonEmpty


class HelmConfig(_Config):
    """Edits of a source's Helm options."""

    images: Annotated[Sequence[HelmImageConfig], Field(min_length=1)]


class SourceConfig(_Config):
    """What to do with one source of the Application."""

    repo_url: NonEmpty
    chart: str = ""
    desired_revision: str = ""
    update_target_revision: bool = False
    kustomize: KustomizeConfig | None = None
    helm: HelmConfig | None = None

    @model_validator(mode="after")
    def _revision_to_set(self) -> Self:
        if self.update_target_revision and not self.desired_revision:
            raise ValueError("updateTargetRevision needs a desiredRevision")
        return self

    def update(self) -> SourceUpdate:
        """As the edit of an Application takes it."""
        kustomize = self.kustomize.images if self.kustomize else ()
        helm = self.helm.images if self.helm else ()
        return SourceUpdate(
            self.repo_url,
            self.chart,
            self.desired_revision,
            self.update_target_revision,
            [KustomizeImage(i.repo_url, i.tag, i.digest, i.new_name) for i in kustomize],
            [HelmParameter(i.key, i.value) for i in helm],
        )


class AppConfig(_Config):
    """One Application."""

    name: NonEmpty
    namespace: str = ""
    sources: Sequence[SourceConfig] = ()


class ArgoCDUpdateConfig(_Config):
    """The configuration of the step."""

    apps: Annotated[Sequence[AppConfig], Field(min_length=1)]


def requests(config: ArgoCDUpdateConfig, stage: str, default_namespace: str) -> list[UpdateRequest]:
    """What to ask of each Application, one entry each, in the order they are first named."""
    merged: dict[Key, list[SourceUpdate]] = {}
    for app in config.apps:
        key = Key(app.namespace or default_namespace, app.name)
        merged.setdefault(key, []).extend(source.update() for source in app.sources)
    return [UpdateRequest(key, stage, updates) for key, updates in merged.items()]


def read_config(config: object) -> ArgoCDUpdateConfig:
    """Check *config*; raises ValueError that names each wrong field."""
    try:
        return ArgoCDUpdateConfig.model_validate(config)
    except ValidationError as error:
        faults = [f"{_where(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()[:3]]
        raise ValueError("; ".join(faults)) from error


def _where(location: Sequence[int | str]) -> str:
    return "config" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


class ArgoCDUpdate:
    """Runs the step."""

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    async def run(self, context: StepContext) -> StepOutcome:
        """Record the intents, start what may be started, and see how far it got."""
        try:
            wanted = requests(read_config(context.config), context.stage_key, self._argocd.default_namespace)
        except ValueError as error:
            return Finished(StepStatus.FAILED, f"invalid configuration: {error}")
        if not context.records:
            return await self._intend(context, wanted)
        return await self._go_on(context, wanted)

    async def _intend(self, context: StepContext, wanted: Sequence[UpdateRequest]) -> StepOutcome:
        """Check all Applications before any is touched, and say what is going to be done to each."""
        try:
            stamp = make_stamp(
                context.instance, context.project, context.promotion, context.promotion_uid, context.alias, 1
            )
            return Intend([await self._argocd.intend(request, context.alias, stamp) for request in wanted])
        except (TargetError, StampError) as error:
            return Finished(StepStatus.ERRORED, str(error))

    async def _go_on(self, context: StepContext, wanted: Sequence[UpdateRequest]) -> StepOutcome:
        """Start what may be started, look at the rest; intents that are not true any more are recorded anew first."""
        by_key = {request.key: request for request in wanted}
        origin = Origin(context.promotion, context.actor)
        records: list[Record] = []
        waits: list[Observation] = []
        renewed = False
        failure: KubeError | None = None
        for record in context.records:
            observation = Observation(record, record.message)
            if not record.state.final:
                try:
                    request = _request(by_key, record)
                    fresh = await self._argocd.outdated(record, request)
                    if fresh is None:
                        observation = await self._argocd.start(record, request, origin)
                        fresh = await self._argocd.outdated(record, request) if observation.start else None
                    if fresh is not None:
                        renewed = True
                        records.append(fresh)
                        continue
                except (TargetError, Invalid, Forbidden) as error:
                    refused = record.ended(TargetState.REFUSED, str(error))
                    observation = Observation(refused, refused.message)
                except KubeError as error:
                    # Each start stands alone: the others are started and looked at before this is raised.
                    failure = failure or error
                if not observation.record.state.final:
                    waits.append(observation)
            records.append(_bounded(observation.record, len(context.records)))
        if renewed:
            return Intend(records)
        if failure is not None:
            raise failure
        if waits:
            return Waiting(_joined([w.message for w in waits]), records, any(w.notable for w in waits))
        return _finish(records)


def _request(by_key: Mapping[Key, UpdateRequest], record: Record) -> UpdateRequest:
    """What the step asks of the target of *record*; raises TargetError if it does not ask for it any more."""
    request = by_key.get(record.key)
    if request is None:
        raise TargetError(f"{describe(record.key)} is not in spec.steps any more; they were changed")
    return request


def _bounded(record: Record, among: int) -> Record:
    """*record* with its share of the room that the messages of one step may take: an object has 1.5 MiB in all."""
    room = max(_LEAST_MESSAGE, _ALL_MESSAGES // among)
    if len(record.message.encode()) <= room:
        return record
    return record.ended(record.state, record.message.encode()[: room - 3].decode(errors="ignore") + "…")


def _joined(messages: Sequence[str]) -> str:
    """The first few of *messages*, and how many more there are."""
    more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
    return "; ".join(messages[:_SHOWN]) + more


def _finish(records: Sequence[Record]) -> Finished:
    """All Applications have ended: the step is what the worst of them is."""
    output = {"apps": [{"name": r.name, "namespace": r.namespace} for r in records]}
    bad = [r for r in records if r.state is not TargetState.SUCCEEDED]
    if bad:
        return Finished(StepStatus.FAILED, _joined([r.message for r in bad]), output, records=records)
    check = HealthCheckStep(uses=USES, config=check_config(records))
    return Finished(StepStatus.SUCCEEDED, "", output, check, records)
