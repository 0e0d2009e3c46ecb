"""The functions that the expressions of a Promotion have, over values that are handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from kargo_py.api.freight import ArtifactReference, Chart, FreightReference, GitCommit, Image
from kargo_py.api.names import normalize_chart, normalize_git, normalize_image
from kargo_py.api.promotion import StepExecutionMetadata, StepStatus
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.lookups import Lookup, Lookups, Source
from kargo_py.expressions.semver import difference, parse_version, record as version_record
from kargo_py.expressions.values import Budget, Function, Record, Value, article
from kargo_py.expressions.writing import go_quoted, to_json, to_yaml

_TYPES: Final = "github.com/akuity/kargo/api/v1alpha1"
_ORIGIN: Final = f"{_TYPES}.FreightOrigin"
SEPARATOR: Final = "::"
"""Between the alias of a task and that of its step."""


def _string(function: str, value: Value, *, named: str = "argument") -> str:
    if type(value) is not str:
        raise Fault(f"{function}: the {named} must be a string, not {article(value)}")
    return value


# Texts


def _quote(value: Value) -> str:
    return go_quoted(value) if type(value) is str else _unsafe_quote(value)


def _unsafe_quote(value: Value) -> str:
    return f'"{_measured(value, to_json)}"'


def _as_json(value: Value) -> str:
    return f'"{_measured(value, lambda one: to_json(one, "  "))}\n"'


def _as_yaml(value: Value) -> str:
    return f'"{_measured(value, to_yaml)}"'


def _measured(value: Value, write: Callable[[Value], str]) -> str:
    budget = Budget()
    budget.measure(value)
    text = write(value)
    budget.write(len(text))
    return text


TEXT_FUNCTIONS: Final[Mapping[str, Function]] = {
    "quote": Function("quote", _quote, 1, 1),
    "unsafeQuote": Function("unsafeQuote", _unsafe_quote, 1, 1),
    "asJSON": Function("asJSON", _as_json, 1, 1, of_texts=False),
    "asYAML": Function("asYAML", _as_yaml, 1, 1, of_texts=False),
}
"""Those that every template has."""


# Versions


def _semver_diff(one: Value, other: Value) -> str:
    return difference(_string("semverDiff", one), _string("semverDiff", other))


def _semver_parse(text: Value) -> Record:
    version = parse_version(_string("semverParse", text))
    if version is None:
        raise Fault("invalid semantic version: {!r}", text[:100])
    return version_record(version)


VERSION_FUNCTIONS: Final[Mapping[str, Function]] = {
    "semverDiff": Function("semverDiff", _semver_diff, 2, 2),
    "semverParse": Function("semverParse", _semver_parse, 1, 1),
}


# Freight


def _wire(**names: str) -> Mapping[str, str]:
    return names


_COMMIT: Final = _wire(
    repoURL="RepoURL",
    id="ID",
    branch="Branch",
    tag="Tag",
    message="Message",
    author="Author",
    committer="Committer",
    subscriptionName="SubscriptionName",
)
_IMAGE: Final = _wire(
    repoURL="RepoURL", tag="Tag", digest="Digest", annotations="Annotations", subscriptionName="SubscriptionName"
)
_CHART: Final = _wire(repoURL="RepoURL", name="Name", version="Version", subscriptionName="SubscriptionName")
_STEP: Final = _wire(
    alias="Alias",
    startedAt="StartedAt",
    finishedAt="FinishedAt",
    errorCount="ErrorCount",
    status="Status",
    message="Message",
    continueOnError="ContinueOnError",
)
_FIELDS: Final = frozenset({"ArtifactType", "SubscriptionName", "Version", "Metadata"})


def commit_record(commit: GitCommit) -> Record:
    """*commit* as an expression has it."""
    values = {
        "RepoURL": commit.repo_url,
        "ID": commit.id,
        "Branch": commit.branch,
        "Tag": commit.tag,
        "Message": commit.message,
        "Author": commit.author,
        "Committer": commit.committer,
        "SubscriptionName": commit.subscription_name,
    }
    return Record(f"{_TYPES}.GitCommit", values, _COMMIT)


def image_record(image: Image) -> Record:
    """*image* as an expression has it."""
    values = {
        "RepoURL": image.repo_url,
        "Tag": image.tag,
        "Digest": image.digest,
        "Annotations": dict(image.annotations),
        "SubscriptionName": image.subscription_name,
    }
    return Record(f"{_TYPES}.Image", values, _IMAGE)


def chart_record(chart: Chart) -> Record:
    """*chart* as an expression has it."""
    values = {
        "RepoURL": chart.repo_url,
        "Name": chart.name,
        "Version": chart.version,
        "SubscriptionName": chart.subscription_name,
    }
    return Record(f"{_TYPES}.Chart", values, _CHART)


def artifact_record(artifact: ArtifactReference) -> Record:
    """*artifact* as an expression has it; in JSON its fields have the names that they have in Go, as in Kargo."""
    values = {
        "ArtifactType": artifact.artifact_type,
        "SubscriptionName": artifact.subscription_name,
        "Version": artifact.version,
        "Metadata": dict(artifact.metadata or {}),
    }
    return Record(f"{_TYPES}.ArtifactReference", values, {name: name for name in values}, _FIELDS)


def step_record(meta: StepExecutionMetadata) -> Record:
    """How a step went, as ``stepMetas`` has it."""
    values: dict[str, Value] = {
        "Alias": meta.alias,
        "StartedAt": str(meta.started_at) if meta.started_at else None,
        "FinishedAt": str(meta.finished_at) if meta.finished_at else None,
        "ErrorCount": meta.error_count,
        "Status": str(meta.status),
        "Message": meta.message,
        "ContinueOnError": meta.continue_on_error,
    }
    return Record(f"{_TYPES}.StepExecutionMetadata", values, _STEP)


def _warehouse(name: Value) -> Record:
    if not _string("warehouse", name):
        raise Fault("warehouse: the name must not be empty")
    return Record(
        _ORIGIN,
        {"Kind": "Warehouse", "Name": name},
        {"kind": "Kind", "name": "Name"},
        frozenset({"kind", "name"}),
        {"String": Function("String", lambda _: f"Warehouse/{name}", 1, 1)},
    )


def _origin(function: str, value: Value) -> str | None:
    if value is None:
        return None
    if type(value) is not Record or value.type_name != _ORIGIN:
        raise Fault(f"{function}: an origin must be given as warehouse('NAME'), not {article(value)}")
    return f"{value.values['Kind']}/{value.values['Name']}"


def _found(what: str, found: Iterable[tuple[str, Record]], origin: str | None, *data: str) -> Record | None:
    """The one of *found* that comes from *origin*; without one, only one origin may have it.

    *what* they are has ``{}`` for each of *data*, as for a Fault.
    """
    candidates = [(where, one) for where, one in found if origin in {None, where}]
    origins = list(dict.fromkeys(where for where, _ in candidates))
    if len(origins) > 1:
        raise Fault(
            f"{what} is in the Freight of {{}}: name one of them, as in warehouse('{{}}')",
            *data,
            " and ".join(origins),
            origins[0].partition("/")[2],
        )
    return candidates[0][1] if candidates else None


def freight_functions(references: Sequence[FreightReference]) -> dict[str, Function]:
    """``commitFrom`` and its kin over the Freight of a Promotion."""
    homes = [(str(reference.origin), reference) for reference in references if reference.origin is not None]

    def commit_from(url: Value, origin: Value = None) -> Value:
        wanted = normalize_git(_string("commitFrom", url, named="first argument"))
        found = (
            (home, commit_record(one))
            for home, r in homes
            for one in r.commits
            if normalize_git(one.repo_url) == wanted
        )
        return _found("a commit of {}", found, _origin("commitFrom", origin), url[:200])

    def image_from(url: Value, origin: Value = None) -> Value:
        wanted = normalize_image(_string("imageFrom", url, named="first argument"))
        found = (
            (home, image_record(one))
            for home, r in homes
            for one in r.images
            if normalize_image(one.repo_url) == wanted
        )
        return _found("an image of {}", found, _origin("imageFrom", origin), url[:200])

    def chart_from(url: Value, *more: Value) -> Value:
        wanted = normalize_chart(_string("chartFrom", url, named="first argument"))
        name = more[0] if more and type(more[0]) is str else ""
        rest = more[1:] if name or (more and type(more[0]) is str) else more
        if len(rest) > 1:
            raise Fault(f"chartFrom: the second argument must be the name of the chart, not {article(more[0])}")
        origin = _origin("chartFrom", rest[0]) if rest else None
        found = (
            (home, chart_record(one))
            for home, r in homes
            for one in r.charts
            if normalize_chart(one.repo_url) == wanted and one.name == name
        )
        data = (name[:200], url[:200]) if name else (url[:200],)
        chart = _found("chart {!r} of {}" if name else "a chart of {}", found, origin, *data)
        if chart is None and origin is None:
            named = 'chart "{}"' if name else "chart"
            raise Fault(f"{named} from repo {{}} not found in referenced Freight", *data)
        return chart

    def artifact_from(subscription: Value, origin: Value = None) -> Value:
        wanted = _string("artifactFrom", subscription, named="first argument")
        found = (
            (home, artifact_record(one)) for home, r in homes for one in r.artifacts if one.subscription_name == wanted
        )
        return _found("an artifact of subscription {}", found, _origin("artifactFrom", origin), wanted[:200])

    return {
        "warehouse": Function("warehouse", _warehouse, 1, 1),
        "commitFrom": Function("commitFrom", commit_from, 1, 2),
        "imageFrom": Function("imageFrom", image_from, 1, 2),
        "chartFrom": Function("chartFrom", chart_from, 1, 3),
        "artifactFrom": Function("artifactFrom", artifact_from, 1, 2),
    }


# How the steps before went


def status_functions(alias: str, steps: Sequence[StepExecutionMetadata]) -> dict[str, Function]:
    """``always``, ``failure``, ``success`` and ``status`` for the step *alias*, with *steps* before it."""
    task = alias.rpartition(SEPARATOR)[0]

    @cache
    def failed() -> bool:
        return any(s.status in {StepStatus.ERRORED, StepStatus.FAILED} and not s.continue_on_error for s in steps)

    def status(wanted: Value) -> str:
        if not _string("status", wanted):
            raise Fault("status: the alias must not be empty")
        for step in steps:
            home, _, short = step.alias.rpartition(SEPARATOR)
            if home == task and short == wanted:
                return str(step.status)
        return ""

    return {
        "always": Function("always", lambda: True, 0, 0),
        "failure": Function("failure", failed, 0, 0),
        "success": Function("success", lambda: not failed(), 0, 0),
        "status": Function("status", status, 1, 1),
    }


# What is read


def lookup_functions(lookups: Lookups) -> dict[str, Function]:
    """``configMap``, ``secret``, ``freightMetadata`` and their kin; what *lookups* lacks is Missing."""

    def function(source: Source) -> Function:
        # Data is an empty map where there is none, metadata is nil
        empty = source in {Source.CONFIG_MAP, Source.SECRET, Source.SHARED_CONFIG_MAP, Source.SHARED_SECRET}

        def look_up(name: Value) -> Any:
            if not _string(source, name):
                raise Fault(f"{source}: the name must not be empty")
            found = lookups.get(Lookup(source, name))
            return ({} if empty else None) if found is None else dict(found)

        return Function(source.value, look_up, 1, 1)

    return {source.value: function(source) for source in Source}


def promotion_functions(references: Sequence[FreightReference], lookups: Lookups) -> dict[str, Function]:
    """All that the variables of a Promotion have; those of a step have the status functions besides."""
    return {
        **TEXT_FUNCTIONS,
        **VERSION_FUNCTIONS,
        **freight_functions(references),
        **lookup_functions(lookups),
    }
