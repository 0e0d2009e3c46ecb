"""The configuration of the step ``argocd-update``: its form, its checks, and what it asks of each Application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from kargo_py.api.types import wire_name
from kargo_py.argocd.sources import HelmParameter, KustomizeImage, SourceUpdate
from kargo_py.deployers.argocd_admission import UpdateRequest
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

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
NOT_A_STRING = message(
    "must be a string; put a revision made of digits in quotes",
    do="Part of *invalid configuration*: YAML takes `123456`, `1e6` or `true` without quotes for something else. "
    'Write `"123456"`.',
    shown=Shown.PROMOTION,
)


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
            raise ValueError(ONE_OF_TAG_AND_DIGEST())
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


class AppConfig(_Config):
    """One Application."""

    name: NonEmpty
    namespace: str = ""
    sources: Sequence[SourceConfig] = ()
    accept_newer: bool = False


class ArgoCDUpdateConfig(_Config):
    """The configuration of the step."""

    apps: Annotated[Sequence[AppConfig], Field(min_length=1)]
    on_abort: Literal["keep", "revert"] = "keep"
    on_timeout: Literal["detach", "terminate"] = "detach"


def requests(config: ArgoCDUpdateConfig, stage: str, default_namespace: str) -> list[UpdateRequest]:
    """What to ask of each Application, one entry each, in the order they are first named."""
    merged: dict[Key, list[AppConfig]] = {}
    for app in config.apps:
        merged.setdefault(Key(app.namespace or default_namespace, app.name), []).append(app)
    return [
        UpdateRequest(
            key,
            stage,
            [source.update() for entry in entries for source in entry.sources],
            accept_newer=any(entry.accept_newer for entry in entries),
        )
        for key, entries in merged.items()
    ]


def read_config(config: object) -> ArgoCDUpdateConfig:
    """Check *config*; raises ValueError that names each wrong field."""
    try:
        return ArgoCDUpdateConfig.model_validate(config)
    except ValidationError as error:
        faults = [f"{_where(fault['loc'])}: {_what(fault)}" for fault in error.errors()[:3]]
        raise ValueError("; ".join(faults)) from error


def _where(location: Sequence[int | str]) -> str:
    return "config" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _what(fault: ErrorDetails) -> str:
    if fault["type"] == "string_type" and isinstance(
        fault["input"], int | float
    ):  # in YAML without quotes; bool is int
        return NOT_A_STRING()
    return fault["msg"].removeprefix("Value error, ")
