"""The configuration of the step ``argocd-update``: its form, its checks, and what it asks of each Application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kargo_py.argocd.application import describe
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate
from kargo_py.deployers.argocd_admission import TargetError, UpdateRequest
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.config import AppChoice, Config, NonEmpty, read_as

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


class KustomizeImageConfig(Config):
    """An image for ``kustomize.images``; exactly one of tag and digest."""

    repo_url: NonEmpty
    tag: str = ""
    digest: str = ""
    new_name: str = ""

    @model_validator(mode="after")
    def _one_version(self) -> Self:
        if bool(self.tag) == bool(self.digest):
            raise ValueError(ONE_OF_TAG_AND_DIGEST())
        return self


class KustomizeConfig(Config):
    """Edits of a source's Kustomize options."""

    images: Annotated[Sequence[KustomizeImageConfig], Field(min_length=1)]


class HelmImageConfig(Config):
    """A Helm parameter to set."""

    key: NonEmpty
    value: NonEmpty


class HelmConfig(Config):
    """Edits of a source's Helm options."""

    images: Annotated[Sequence[HelmImageConfig], Field(min_length=1)]


class SourceConfig(Config):
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
            raise ValueError(REVISION_NEEDED())
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


class AppConfig(AppChoice):
    """One Application, or all that a selector matches."""

    sources: Sequence[SourceConfig] = ()
    accept_newer: bool = False


class ArgoCDUpdateConfig(Config):
    """The configuration of the step."""

    apps: Annotated[Sequence[AppConfig], Field(min_length=1)]
    on_abort: Literal["keep", "revert"] = "keep"
    on_timeout: Literal["detach", "terminate"] = "detach"
    on_partial_failure: Literal["wait", "terminate"] = "wait"


class Wishes:
    """What a step asks of which Application; *stage* is "<project>:<stage>"."""

    def __init__(self, config: ArgoCDUpdateConfig, stage: str, default_namespace: str) -> None:
        self._config = config
        self._stage = stage
        self.choices = [app.choice(default_namespace) for app in config.apps]
        self._by_name: dict[Key, list[int]] = {}
        for index, choice in enumerate(self.choices):
            if choice.selector is None:
                self._by_name.setdefault(Key(choice.namespace, choice.name), []).append(index)
        self._merged: dict[tuple[int, ...], UpdateRequest] = {}

    def request(self, key: Key, entries: Sequence[int] = ()) -> UpdateRequest:
        """What the entries with these indexes, merged, ask of *key*; without indexes those that name it.

        Raises TargetError if there are none any more.
        """
        which = tuple(entries) or tuple(self._by_name.get(key, ()))
        if not which or not all(self._concerns(index, key) for index in which):
            raise TargetError(NOT_ASKED_FOR(app=describe(key)))
        if which not in self._merged:
            self._merged[which] = self._merge(key, [self._config.apps[index] for index in which])
        return replace(self._merged[which], key=key, entries=tuple(entries))

    def patience(self, index: int) -> timedelta:
        """How long the entry waits until what it is about is there."""
        waits = self._config.apps[index].wait_for_creation
        return timedelta(seconds=waits.seconds) if waits is not None else timedelta()

    def _concerns(self, index: int, key: Key) -> bool:
        """Whether the entry can have chosen *key*: its labels may be others by now."""
        if not 0 <= index < len(self.choices):
            return False
        choice = self.choices[index]
        return choice.namespace == key.namespace and (choice.selector is not None or choice.name == key.name)

    def _merge(self, key: Key, entries: Sequence[AppConfig]) -> UpdateRequest:
        return UpdateRequest(
            key,
            self._stage,
            [source.update() for entry in entries for source in entry.sources],
            accept_newer=any(entry.accept_newer for entry in entries),
        )


def read_config(config: object) -> ArgoCDUpdateConfig:
    """Check *config*; raises ValueError that names each wrong field."""
    return read_as(ArgoCDUpdateConfig, config)
