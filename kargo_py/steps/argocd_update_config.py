"""The configuration of the step ``argocd-update``: its form, its checks, and what it asks of each Application."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from kargo_py.argocd.application import describe
from kargo_py.argocd.options import ResourceName, SyncOptions
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate
from kargo_py.deployers.argocd_admission import LastingError, TargetError, UpdateRequest
from kargo_py.deployers.base import Record
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.config import AppChoice, Config, Flag, NonEmpty, read_as

ONE_OF_TAG_AND_DIGEST = message(
    "exactly one of tag and digest must be given",
    do="Part of *invalid configuration*: give this image of the step's config a `tag` or a `digest`, not both.",
    shown=Shown.PROMOTION,
)
REVISION_NEEDED = message(
    "updateTargetRevision needs a desiredRevision",
    do="Part of *invalid configuration*: give this source of the step's config a `desiredRevision`, or take "
    "`updateTargetRevision` away.",
    shown=Shown.PROMOTION,
)
NOT_ASKED_FOR = message(
    "{app} is not in spec.steps any more; they were changed",
    do="Somebody edited the steps of a running Promotion. Create a new Promotion with the steps as they should be.",
    shown=Shown.PROMOTION,
)


CONTRADICTION = message(
    "config.apps[{one}] and config.apps[{other}] contradict each other about {app}: {field} is {this} in the one and "
    "{that} in the other",
    do="Part of *invalid configuration*: both entries are about the same Application, which is synced once. Give "
    "both the same value, or take one of them away.",
    shown=Shown.PROMOTION,
)
DRY_RUN_CHANGES = message(
    "dryRun changes nothing, so updateTargetRevision, kustomize and helm cannot be carried out with it",
    do="Part of *invalid configuration*: a change of the spec would be deployed by auto-sync, or by the next sync. "
    "Take these fields of the entry away; `revision` tries what is not in the spec yet.",
    shown=Shown.PROMOTION,
)
ONE_OF_REVISION_AND_REVISIONS = message(
    "only one of revision and revisions can be given",
    do="Part of *invalid configuration*: `revision` is for an Application with one source, `revisions` for one with "
    "several.",
    shown=Shown.PROMOTION,
)


class KustomizeImageConfig(Config):
    """An image for ``kustomize.images``; exactly one of tag and digest."""

    repo_url: NonEmpty
    """The image, without tag."""
    tag: str = ""
    """Written as `repoURL:tag`; exactly one of `tag` and `digest`."""
    digest: str = ""
    """Written as `repoURL@digest`."""
    new_name: str = ""
    """Written as `repoURL=newName:tag`."""

    @model_validator(mode="after")
    def _one_version(self) -> Self:
        if bool(self.tag) == bool(self.digest):
            raise ValueError(ONE_OF_TAG_AND_DIGEST())
        return self


class KustomizeConfig(Config):
    """Edits of a source's Kustomize options."""

    images: Annotated[Sequence[KustomizeImageConfig], Field(min_length=1)] = ()
    """Replaces the source's `kustomize.images`, in this order."""


class HelmImageConfig(Config):
    """A Helm parameter to set."""

    key: NonEmpty
    """Name of the parameter."""
    value: str
    """Its value; may be `""`."""


class HelmConfig(Config):
    """Edits of a source's Helm options."""

    images: Annotated[Sequence[HelmImageConfig], Field(min_length=1)]
    """Sets parameters in the source's `helm.parameters`."""


class SourceConfig(Config):
    """What to do with one source of the Application."""

    repo_url: NonEmpty
    """With `chart`, says which source of the Application is meant."""
    chart: str = ""
    """For a source that is a Helm chart repository."""
    desired_revision: str = ""
    """The revision that must have been applied for the step to succeed."""
    update_target_revision: Flag = False
    """Write `desiredRevision`, which it needs, into the source's `targetRevision`."""
    kustomize: KustomizeConfig | None = None
    """Edits of the source's Kustomize options."""
    helm: HelmConfig | None = None
    """Edits of the source's Helm options."""

    @model_validator(mode="after")
    def _revision_to_set(self) -> Self:
        if self.update_target_revision and not self.desired_revision:
            raise ValueError(REVISION_NEEDED())
        return self

    @property
    def changes(self) -> bool:
        """Whether the spec of the Application is to be changed."""
        return self.update_target_revision or bool(self.kustomize and self.kustomize.images) or self.helm is not None

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


class ResourceConfig(Config):
    """A resource of a partial sync; no namespace: in any."""

    group: str = ""
    """API group of the resource; not given, or `""`, for the core group."""
    kind: NonEmpty
    """Kind of the resource."""
    name: NonEmpty
    """Name of the resource."""
    namespace: str = ""
    """Namespace of the resource; any, if not given."""


class AppConfig(AppChoice):
    """One Application, or all that a selector matches."""

    sources: Sequence[SourceConfig] = ()
    """What to do with the sources of the Application; without it the Application is only synced."""
    accept_newer: Flag | None = None
    """Also accept a revision that the Application's history shows to be later than the desired one, of the same source.
    From here on all fields are additions of kargo-py."""
    prune: Flag | None = None
    """Delete what the Application has and the source has not."""
    dry_run: Flag = False
    """Try the sync without carrying it out."""
    resources: Annotated[Sequence[ResourceConfig], Field(min_length=1)] = ()
    """Sync only these resources."""
    revision: str = ""
    """What to sync to, in the place of the source's `targetRevision`; for an Application with one source."""
    revisions: Annotated[Sequence[str], Field(min_length=1)] = ()
    """The same for several sources: one entry for each, in the order of `spec.sources`; `""` is the source's own."""
    health_check: Flag | None = None
    """Whether the Stage judges the Application from then on; it does if not given."""
    operation_started_event: Flag | None = None
    """Put an Event `OperationStarted` on the Application, as Kargo always does; needs `create` on events in its
    namespace."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.revision and self.revisions:
            raise ValueError(ONE_OF_REVISION_AND_REVISIONS())
        if self.dry_run and any(source.changes for source in self.sources):
            raise ValueError(DRY_RUN_CHANGES())
        return self


T = TypeVar("T")

_MOST_SHOWN = 80


class ArgoCDUpdateConfig(Config):
    """The configuration of the step."""

    apps: Annotated[Sequence[AppConfig], Field(min_length=1)]
    """The Applications."""
    on_abort: Literal["keep", "revert"] = "keep"
    """Whether an abort puts back the spec fields that the step changed, where they are still as it left them. Like the
    next two an addition of kargo-py."""
    on_timeout: Literal["detach", "terminate"] = "detach"
    """Whether a step that has had its time leaves the syncs to run or ends them first."""
    on_partial_failure: Literal["wait", "terminate"] = "wait"
    """Whether, once one Application has failed for good, the others run to their end or are ended."""


class Wishes:
    """What a step asks of which Application; *stage* is "<project>:<stage>".

    Raises ValueError where entries that name one Application contradict each other.
    """

    def __init__(self, config: ArgoCDUpdateConfig, stage: str, default_namespace: str) -> None:
        self._config = config
        self._stage = stage
        self.choices = [app.choice(default_namespace) for app in config.apps]
        self._by_name: dict[Key, list[int]] = {}
        for index, choice in enumerate(self.choices):
            if choice.selector is None:
                self._by_name.setdefault(Key(choice.namespace, choice.name), []).append(index)
        self._merged = {tuple(which): self._merge(key, which) for key, which in self._by_name.items()}

    def request(self, key: Key, entries: Sequence[int] = ()) -> UpdateRequest:
        """What the entries with these indexes, merged, ask of *key*; without indexes those that name it.

        Raises LastingError if there are none any more, and where they contradict each other.
        """
        which = tuple(entries) or tuple(self._by_name.get(key, ()))
        if not which or not all(self._concerns(index, key) for index in which):
            raise LastingError(NOT_ASKED_FOR(app=describe(key)))
        if which not in self._merged:
            try:
                self._merged[which] = self._merge(key, which)
            except ValueError as error:
                raise LastingError(str(error)) from error
        return dataclasses.replace(self._merged[which], key=key, entries=tuple(entries))

    def _merge(self, key: Key, which: Sequence[int]) -> UpdateRequest:
        return combined(key, [(index, self._config.apps[index]) for index in which], self._stage)

    def judges(self, record: Record) -> bool:
        """Whether the Application is to be judged from then on; it is if nothing is said of it any more."""
        try:
            return self.request(record.key, record.entries).health_check
        except TargetError:
            return True

    def patience(self, index: int) -> timedelta:
        """How long the entry waits until what it is about is there."""
        return self._config.apps[index].patience

    def _concerns(self, index: int, key: Key) -> bool:
        """Whether the entry can have chosen *key*: its labels may be others by now."""
        if not 0 <= index < len(self.choices):
            return False
        choice = self.choices[index]
        return choice.namespace == key.namespace and (choice.selector is not None or choice.name == key.name)


def combined(key: Key, entries: Sequence[tuple[int, AppConfig]], stage: str) -> UpdateRequest:
    """What *entries*, each with its index, ask of one Application; raises LastingError where they contradict.

    What is not given in an entry is left to the others, except that an Application is synced as a whole or in part, and
    in earnest or as a dry run: these two the entries must agree about.
    """

    def agreed(field: str, values: Sequence[tuple[int, T | None]], default: T) -> T:
        given = [(index, value) for index, value in values if value is not None]
        one, this = next(iter(given), (0, default))
        for other, that in given:
            if that != this:
                app, shown = describe(key), (_shown(this), _shown(that))
                said = CONTRADICTION(one=one, other=other, app=app, field=field, this=shown[0], that=shown[1])
                raise LastingError(said)
        return this

    sync = SyncOptions(
        prune=agreed("prune", [(i, e.prune) for i, e in entries], default=False),
        dry_run=agreed("dryRun", [(i, e.dry_run) for i, e in entries], default=False),
        revision=agreed("revision", [(i, e.revision or None) for i, e in entries], ""),
        revisions=agreed("revisions", [(i, tuple(e.revisions) or None) for i, e in entries], ()),
        resources=tuple({r: None for _, e in entries for r in map(_resource, e.resources)}),
    )
    agreed("resources", [(i, "given" if e.resources else "absent") for i, e in entries], "")
    agreed("revision(s)", [(i, _revision_field(e)) for i, e in entries], "")
    return UpdateRequest(
        key,
        stage,
        [source.update() for _, entry in entries for source in entry.sources],
        accept_newer=agreed("acceptNewer", [(i, e.accept_newer) for i, e in entries], default=False),
        sync=sync,
        health_check=agreed("healthCheck", [(i, e.health_check) for i, e in entries], default=True),
        event=agreed("operationStartedEvent", [(i, e.operation_started_event) for i, e in entries], default=False),
    )


def _resource(config: ResourceConfig) -> ResourceName:
    return ResourceName(config.kind, config.name, config.group, config.namespace)


def _revision_field(entry: AppConfig) -> str | None:
    return "revision" if entry.revision else "revisions" if entry.revisions else None


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def read_config(config: object) -> ArgoCDUpdateConfig:
    """Check *config*; raises ValueError that names each wrong field."""
    return read_as(ArgoCDUpdateConfig, config)
