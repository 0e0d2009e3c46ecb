"""What stands in a Stage's metadata for other programs: its finalizer, and the Applications behind it. Pure.

The finalizer is put on with the first thing that Freight says about the Stage: then there is something to tidy when it
is deleted. A Stage of which no Freight says anything goes at once, whether anybody of ours runs or not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kargo_py.api.meta import ObjectMeta
from kargo_py.api.names import ANNOTATION_ARGOCD_CONTEXT, FINALIZER
from kargo_py.api.types import JsonObject
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Key

ROOM = 64 * 1024
"""Bytes for the annotation; an object may have 256 KiB of annotations in all."""


def argocd_context(applications: Iterable[Key]) -> str | None:
    """The value of the annotation ``argocd-context``: each Application once, as many as there is room for."""
    entries = [{"name": key.name, "namespace": key.namespace} for key in dict.fromkeys(applications)]
    if not entries:
        return None
    size = 2
    for number, entry in enumerate(entries):
        size += len(encode(entry)) + 1
        if size > ROOM:
            return encode(entries[:number]).decode()
    return encode(entries).decode()


def metadata_patch(meta: ObjectMeta, context: str | None, *, finalizer: bool) -> JsonObject:
    """The merge patch for ``metadata`` that puts *context*, and if asked for the finalizer, there; {} if they are."""
    patch: JsonObject = {}
    if finalizer and FINALIZER not in meta.finalizers:
        patch["finalizers"] = [*meta.finalizers, FINALIZER]
    if not _same(meta.annotations.get(ANNOTATION_ARGOCD_CONTEXT), context):
        patch["annotations"] = {ANNOTATION_ARGOCD_CONTEXT: context}
    return patch


def without_finalizer(meta: ObjectMeta) -> JsonObject:
    """The merge patch for ``metadata`` that takes our finalizer off; {} if it is not there."""
    if FINALIZER not in meta.finalizers:
        return {}
    return {"finalizers": [name for name in meta.finalizers if name != FINALIZER]}


def _same(text: str | None, context: str | None) -> bool:
    """Whether *text* says the same: another program may write JSON with other spaces."""
    if text is None or context is None:
        return text == context
    try:
        return bool(msgspec.json.decode(text) == msgspec.json.decode(context))
    except ValueError:
        return False
