"""What a request is about, read from its line alone: who forbids or disturbs a request decides by this.

Rules: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go. Nothing is looked up, so a resource may not exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from kargo_py.local.apiserver.wire import Request

WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PREFIXED_VERBS = frozenset({"watch", "proxy"})
_OF_NAMESPACES = frozenset({"status", "finalize"})
"""What after a namespace's name is its subresource, and no resource in it."""

_ONE_NAME = re.compile(r"metadata\.name==?([^,=!]+)")


@dataclass(frozen=True, slots=True)
class Attributes:
    """``verb`` is Kubernetes' (get, list, watch, create, …); where ``resource`` is "" it is HTTP's in small letters."""

    verb: str
    path: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def writes(self) -> bool:
        """The request changes something, or is to."""
        return self.verb in WRITING


def attributes(request: Request) -> Attributes:
    """The attributes of *request*."""
    path = unquote(request.path)
    parts = [*path.strip("/").split("/")]
    match parts:
        case ["api", _, _, *_]:
            return _of_resource(request, path, "", parts[2:])
        case ["apis", group, _, _, *_]:
            return _of_resource(request, path, group, parts[3:])
    return Attributes(request.method.lower(), path)


def user_agent(request: Request) -> str:
    """The program's name: what stands before the first slash of ``User-Agent``."""
    return request.headers.get("user-agent", "").partition("/")[0]


def _of_resource(request: Request, path: str, group: str, parts: Sequence[str]) -> Attributes:
    verb, prefixed = _VERBS.get(request.method, ""), ""
    if parts[0] in _PREFIXED_VERBS and len(parts) > 1:
        verb, parts = parts[0], parts[1:]
        prefixed = verb
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 and prefixed != "proxy" else ""
    if verb == "get" and not name:
        verb = "watch" if _is_true(request, "watch") else "list"
        if one := _ONE_NAME.fullmatch(request.parameter("fieldSelector")):
            name = one[1]
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(verb, path, group, parts[0], namespace, name, subresource)


def _is_true(request: Request, parameter: str) -> bool:
    """As Kubernetes reads booleans: there, and not one of the words for no."""
    given = next((value for name, value in request.query if name == parameter), "false")
    return given.lower() not in {"false", "0"}
