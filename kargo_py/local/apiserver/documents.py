"""What is served beside objects: health, the version, discovery, OpenAPI."""

from __future__ import annotations

from typing import Final

from kargo_py.local.apiserver import discovery
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.failures import Failure, unknown_path
from kargo_py.local.apiserver.negotiation import OBJECTS, check_media, wanted
from kargo_py.local.apiserver.openapi import Documents as OpenApi
from kargo_py.local.apiserver.routing import OtherPath
from kargo_py.local.apiserver.wire import JSON, JsonObject, Request, Response, encode

_TEXT: Final = "text/plain; charset=utf-8"
PAGE_NOT_FOUND: Final = Response(404, b"404 page not found\n", _TEXT)
_OK: Final = Response(200, b"ok", _TEXT)
_HEALTH: Final = ("healthz", "livez", "readyz")
_REPRESENTATIONS: Final = {"version": JSON, "api": OBJECTS}
_NOTHING: Final = Response(404, b"", "")
_CHECKS: Final = ("ping", "log", "etcd")
_OPENAPI_V2: Final = "application/com.github.proto-openapi.spec.v2"
_NO_SCHEMAS: Final = Response(200, b"\x0a\x032.0", f"{_OPENAPI_V2}.v1.0+protobuf")
"""The older description as protobuf, with no kinds in it. kubectl looks at it where a manifest has a ``List``, finds no
schema there, and leaves validation to the server."""


def not_allowed() -> Failure:
    """405 of the part of the real server that has the built-in kinds."""
    message = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", message, {})


class Documents:
    """Answers paths that name no resource."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._openapi = OpenApi()

    def answer(self, request: Request, path: OtherPath) -> Response:
        """Answer *path*. Raises Failure."""
        parts = path.parts
        if parts[0] in _HEALTH:
            return PAGE_NOT_FOUND if path.ends_in_slash else self._health(request, parts)
        if parts[:2] == ("openapi", "v3"):
            return _NOTHING if path.ends_in_slash else self._openapi_document("/".join(parts[2:]))
        if parts == ("openapi", "v2") and request.headers.get("accept", "").startswith(_OPENAPI_V2):
            return _NO_SCHEMAS
        made = self._made(request, parts)
        if made is None:
            return self.missing(*parts[:2])
        if request.method != "GET" and (parts[0] in _REPRESENTATIONS or self._is_built_in(parts)):
            raise not_allowed()
        if parts[0] in _REPRESENTATIONS:
            check_media(request.headers.get("accept", ""), _REPRESENTATIONS[parts[0]])
        elif parts[0] == "apis":
            wanted(request.headers.get("accept", ""))
        return Response(200, encode(made))

    def missing(self, root: str, group: str = "") -> Response:
        """404 for a path below *root*: where built-in kinds are it is told in JSON, which is raised as a Failure."""
        if root in _REPRESENTATIONS or (root == "apis" and group and group in self._built_in_groups()):
            raise unknown_path()
        return PAGE_NOT_FOUND

    def _built_in_groups(self) -> set[str]:
        return {kind.group for kind in self._catalogue.kinds if not kind.custom}

    def _is_built_in(self, parts: tuple[str, ...]) -> bool:
        """It is the list of resources in a version of a built-in group."""
        return parts[0] == "apis" and len(parts) == 3 and parts[1] in self._built_in_groups()

    def _openapi_document(self, path: str) -> Response:
        kinds = self._catalogue.kinds
        if not path:
            return Response(200, encode(self._openapi.index(kinds)), _TEXT)
        made = self._openapi.document(kinds, path)
        return _NOTHING if made is None else Response(200, made)

    def _health(self, request: Request, parts: tuple[str, ...]) -> Response:
        if len(parts) > 2 or (len(parts) == 2 and parts[1] not in _CHECKS):
            return PAGE_NOT_FOUND
        if len(parts) == 1 and any(key == "verbose" for key, _ in request.query):
            lines = "".join(f"[+]{check} ok\n" for check in _CHECKS)
            return Response(200, f"{lines}{parts[0]} check passed\n".encode(), _TEXT)
        return _OK

    def _made(self, request: Request, parts: tuple[str, ...]) -> JsonObject | None:
        kinds = self._catalogue.kinds
        match parts:
            case ("",):
                return self._paths()
            case ("version",):
                return discovery.VERSION
            case ("api",):
                return discovery.core_versions(request.headers.get("host", "127.0.0.1"))
            case ("api", version):
                return discovery.resources(kinds, "", version)
            case ("apis",):
                return discovery.groups(kinds)
            case ("apis", group):
                return discovery.group(kinds, group)
            case ("apis", group, version) if group:
                return discovery.resources(kinds, group, version)
        return None

    def _paths(self) -> JsonObject:
        """All paths that can be asked for, as ``/`` lists them."""
        paths = {"/api", "/api/v1", "/apis", "/openapi/v3", "/version", *(f"/{name}" for name in _HEALTH)}
        for kind in self._catalogue.kinds:
            if kind.group:
                paths |= {f"/apis/{kind.group}", f"/apis/{kind.api_version}"}
        return {"paths": sorted(paths)}
