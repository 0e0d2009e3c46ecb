"""What an API server says of an object when it is created: by the schema and the rules of its kind, and its metadata.

The judge is the one of the embedded API server, whose verdicts are tested against those of the real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from kargo_py.api.crd import crd
from kargo_py.api.kinds import KINDS, Kind
from kargo_py.api.meta import API_VERSION
from kargo_py.api.types import JsonObject
from kargo_py.expressions.templates import Path
from kargo_py.local.apiserver import names, objectmeta
from kargo_py.local.apiserver.bodies import Undecodable
from kargo_py.local.apiserver.cel import SKIPPED
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.gotypes import Mismatch, Mistyped
from kargo_py.local.apiserver.schema import Schema, compiled
from kargo_py.local.apiserver.wire import copied
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Finding
from kargo_py.offline.manifests import Manifest, value_at
from kargo_py.steps.config import NO_SUCH_FIELD

UNKNOWN_KIND = message(
    "{version} has no kind {kind}; it has {known}",
    do="Correct `kind` or `apiVersion`, upper and lower case too.",
    shown=Shown.LINT,
)
NOT_ITS_VERSION = message(
    "a {kind} is of {known}",
    do="Correct `apiVersion`.",
    shown=Shown.LINT,
)
OF_THE_CLUSTER = message(
    "a {kind} is of the whole cluster, and has no namespace",
    do="Remove `metadata.namespace`.",
    shown=Shown.LINT,
)
MUST_BE = message(
    "must be of type {wanted}, not {found}",
    do="Correct the value.",
    shown=Shown.LINT,
)

MUST_BE_TEXT = message(
    "must be a text, not {found}; put it in quotes",
    do="YAML takes text that looks like a number or a boolean for one, unless it is in quotes.",
    shown=Shown.LINT,
)
WRITTEN = message(
    "{text} (YAML reads {written} as {value})",
    do="Put the value in quotes if it is a text.",
    shown=Shown.LINT,
)

BY_KIND: Final[Mapping[str, Kind]] = {kind.model.kind_name: kind for kind in KINDS}

_ANY_NAMESPACE: Final = "default"
_LONGEST: Final = 400
_MOST: Final = 50
_PATTERN: Final = "should match '"
_PYDANTIC: Final = "Value error, "


def judge(manifest: Manifest) -> Iterator[Finding]:
    """What is wrong with an object of Kargo's group as such."""
    kind = BY_KIND.get(manifest.kind)
    if manifest.api_version != API_VERSION:
        text = NOT_ITS_VERSION(kind=manifest.kind or "Stage", known=API_VERSION)
        yield manifest.finding(("apiVersion",), text)
        return
    if kind is None:
        text = UNKNOWN_KIND(version=API_VERSION, kind=manifest.kind or "''", known=", ".join(BY_KIND))
        yield manifest.finding(("kind",), text)
        return
    yield from _metadata(manifest, kind)
    yield from _unknown(manifest, kind)
    modelled = _by_model(manifest, kind)
    refused = False
    for path, text in islice(_by_schema(manifest, kind), _MOST):
        refused = True
        # Of a pattern the model says in words what is wanted
        better = modelled.get(path, text) if _PATTERN in text else text
        yield manifest.finding(path, with_written(better, manifest, path))
    for path, text in modelled.items():
        if not refused and path[:1] != ("metadata",):
            yield manifest.finding(path, with_written(text, manifest, path))


@cache
def _schema(kind_name: str) -> Schema:
    (version,) = crd(BY_KIND[kind_name])["spec"]["versions"]
    return compiled(version["schema"]["openAPIV3Schema"])


def _by_schema(manifest: Manifest, kind: Kind) -> Iterator[tuple[Path, str]]:
    schema = _schema(kind.model.kind_name)
    obj = copied(manifest.value)
    schema.prune(obj)
    schema.default(obj)
    # It is judged apart, and one rule asks for the name
    obj["metadata"] = {"name": manifest.name or "x"}
    for error in schema.validate(obj, None):
        if error != SKIPPED:
            yield _located(error.path, manifest.value), _said(error)


def _unknown(manifest: Manifest, kind: Kind) -> Iterator[Finding]:
    for path in _schema(kind.model.kind_name).prune(copied(manifest.value))[:_MOST]:
        yield manifest.finding(_located(path, manifest.value), NO_SUCH_FIELD(), key=True)


def _said(error: FieldError) -> str:
    if error.cause is Cause.TYPE and isinstance(error.value, str):
        _, _, wanted = error.detail.partition("must be of type ")
        wanted = wanted.partition(":")[0]
        return MUST_BE_TEXT(found=error.value) if wanted == "string" else MUST_BE(wanted=wanted, found=error.value)
    return _cut(error.body.replace(f"{error.path} in body ", ""))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def with_written(text: str, manifest: Manifest, path: Path) -> str:
    """*text*, and what YAML made of the value at *path* where that is written otherwise."""
    written, value = manifest.written(path), value_at(manifest.value, path)
    if written is None or json.dumps(value) == written:
        return text
    return WRITTEN(text=text, written=_cut(written), value=json.dumps(value))


def _metadata(manifest: Manifest, kind: Kind) -> Iterator[Finding]:
    metadata = manifest.value.get("metadata")
    obj: JsonObject = {"metadata": copied(metadata)}
    try:
        unknown = objectmeta.decode(obj)
    except (Undecodable, Mistyped) as mistake:
        below = _located(mistake.path, metadata) if isinstance(mistake, Mismatch) else ()
        yield manifest.finding(("metadata", *below), _cut(str(mistake)))
        return
    for text in unknown:
        yield manifest.finding(_located(text, manifest.value), NO_SUCH_FIELD(), key=True)
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}x"
    if kind.cluster_scoped and metadata.pop("namespace", ""):
        yield manifest.finding(("metadata", "namespace"), OF_THE_CLUSTER(kind=manifest.kind))
    elif not kind.cluster_scoped:
        metadata.setdefault("namespace", _ANY_NAMESPACE)
    found = objectmeta.validate(metadata, namespaced=not kind.cluster_scoped, rule=names.dns_subdomain)
    for error in found[:_MOST]:
        path = _located(error.path, manifest.value)
        yield manifest.finding(path, with_written(_said(error), manifest, path))


def _by_model(manifest: Manifest, kind: Kind) -> dict[Path, str]:
    """What the models say, who see more, such as a duration of 300 years: what reads the object would not take it."""
    try:
        kind.model.model_validate(manifest.value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST]
        return {tuple(fault["loc"]): fault["msg"].removeprefix(_PYDANTIC) for fault in faults}
    return {}


def _located(text: str, value: Any) -> Path:
    """The path that Kubernetes writes as *text*, as far as *value* has it: names may have dots and brackets in them."""
    made: list[str | int] = []
    while text:
        text = text.removeprefix(".")
        if isinstance(value, list) and text.startswith("["):
            index, _, rest = text[1:].partition("]")
            if not index.isdecimal() or int(index) >= len(value):
                break
            made.append(int(index))
            value, text = value[int(index)], rest
            continue
        name = _longest(text, value) if isinstance(value, dict) else None
        if name is None:
            # A field that is not there
            made.append(text)
            break
        made.append(name)
        bracketed = text.startswith(f"[{name}]")
        value, text = value[name], text[len(name) + (2 if bracketed else 0) :]
    return tuple(made)


def _longest(text: str, value: Mapping[str, Any]) -> str | None:
    def fits(name: str) -> bool:
        if text.startswith(f"[{name}]"):
            return True
        return text.startswith(name) and (len(text) == len(name) or text[len(name)] in ".[")

    return max(filter(fits, value), key=len, default=None)
