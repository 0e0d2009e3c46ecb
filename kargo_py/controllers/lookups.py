"""Reads what the expressions of a step ask for: ConfigMaps, Secrets, and the metadata of Freight and Stages.

Always from the API server: what a step before has just set must be seen. Of each object only what expressions may see
is kept.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kargo_py.api.names import CREDENTIAL_TYPE_GENERIC, LABEL_CREDENTIAL_TYPE
from kargo_py.api.types import KUBERNETES_NAME_PATTERN, JsonObject
from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.engine.masking import masked_error
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.lookups import Lookup, Source
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Forbidden, KubeError, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

NO_SUCH_NAME = message(
    "{source}({name!r}): no object can have this name",
    do="Correct the name in the expression: at most 253 lower case letters, digits, `-` and `.`.",
    shown=Shown.PROMOTION,
)
NO_SHARED_NAMESPACE = message(
    "{source}({name!r}): this controller has no namespace of shared resources; start it with "
    "--shared-resources-namespace",
    do="Give the controller `--shared-resources-namespace` or `SHARED_RESOURCES_NAMESPACE`, or keep the object in the "
    "Project and use `configMap` or `secret`.",
    shown=Shown.PROMOTION,
)
READING_FORBIDDEN = message(
    "{source}({name!r}): the controller may not read it: {why}; allow get on {resource} in namespace {namespace}",
    do="Give the controller's service account the right named; `deploy/lookups` has it for all namespaces.",
    shown=Shown.PROMOTION,
)

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")

_LONGEST_NAME = 253
_SHOWN = 80
_NAME = re.compile(KUBERNETES_NAME_PATTERN.strip("^$"))


class LookupRefused(Exception):
    """It cannot be read until somebody changes something; the text says what."""


class LookupReader:
    """Reads for expressions; *shared_namespace* is that of the shared resources, "" if there is none."""

    def __init__(self, client: Client, shared_namespace: str = "") -> None:
        self._client = client
        self._shared = shared_namespace

    async def read(self, project: str, lookup: Lookup) -> Mapping[str, Any] | None:
        """What *lookup* is for in *project*; None if there is no such object, or nothing in it.

        Raises LookupRefused, and KubeError for what may pass by itself.
        """
        way = _WAYS[lookup.source]
        if not (len(lookup.name) <= _LONGEST_NAME and _NAME.fullmatch(lookup.name)):
            # It would get into a URL.
            raise LookupRefused(NO_SUCH_NAME(source=lookup.source, name=lookup.shown[:_SHOWN]))
        namespace = self._shared if way.shared else project
        if not namespace:
            raise LookupRefused(NO_SHARED_NAMESPACE(source=lookup.source, name=lookup.shown))
        try:
            found = await self._client.get(way.resource, Key(namespace, lookup.name), codec=JSON)
        except NotFound:
            return None
        except Forbidden as error:
            refused = READING_FORBIDDEN(
                source=lookup.source,
                name=lookup.shown,
                why=error.message.replace(lookup.name, lookup.shown),
                resource=way.resource,
                namespace=namespace,
            )
            raise LookupRefused(refused) from error
        except KubeError as error:
            if not lookup.untold:
                raise
            names = Secrets()
            names.add(lookup.name)
            raise masked_error(error, names) from None
        return way.take(found)


def _data(obj: JsonObject) -> Mapping[str, Any]:
    return obj.get("data") or {}


def _decoded(secret: JsonObject) -> Mapping[str, Any]:
    return {name: _text(value) for name, value in _data(secret).items()}


def _text(value: str) -> str:
    """The text of a value of a Secret; what is no text stays in base64, as the Secret has it."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value


def _decoded_if_generic(secret: JsonObject) -> Mapping[str, Any] | None:
    """A Secret that is not meant for everybody is as if it were not there: repositories' credentials, say."""
    labels = secret["metadata"].get("labels") or {}
    return _decoded(secret) if labels.get(LABEL_CREDENTIAL_TYPE) == CREDENTIAL_TYPE_GENERIC else None


def _status(obj: JsonObject) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _metadata(obj: JsonObject) -> Mapping[str, Any] | None:
    return _status(obj).get("metadata") or None


@dataclass(frozen=True, slots=True)
class _Way:
    """How a source is read, and what of an object is taken."""

    resource: Resource
    take: Callable[[JsonObject], Mapping[str, Any] | None]
    shared: bool = False


_WAYS: Final[Mapping[Source, _Way]] = {
    Source.CONFIG_MAP: _Way(CONFIG_MAPS, _data),
    Source.SECRET: _Way(SECRETS, _decoded),
    Source.SHARED_CONFIG_MAP: _Way(CONFIG_MAPS, _data, shared=True),
    Source.SHARED_SECRET: _Way(SECRETS, _decoded_if_generic, shared=True),
    Source.FREIGHT_METADATA: _Way(FREIGHTS, _metadata),
    Source.FREIGHT_STATUS: _Way(FREIGHTS, _status),
    Source.STAGE_METADATA: _Way(STAGES, _metadata),
}
