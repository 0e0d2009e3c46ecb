"""What is served beside objects: health, the version, discovery, OpenAPI."""

from __future__ import annotations

from typing import Final

from kargo_py.local.apiserver import discovery
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.negotiation import OBJECTS, check_media, wanted
from kargo_py.local.apiserver.openapi import Documents as OpenApi
from kargo_py.local.apiserver.wire import JSON, JsonObject, Request, Response, encode

PAGE_NOT_FOUND: Final = Response(404, b"404 page not found\n", "text/plain; charset=utf-8")
_OK: Final = Response(200, b"ok", "text/plain; charset=utf-8")
_HEALTH: Final = ("healthz", "livez", "readyz")
_REPRESENTATIONS: Final = {"version": JSON, "api": OBJECTS}
_NOTHING: Final = Response(404, b"")
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

    def answer(self, request: Request, parts: tuple[str, ...]) -> Response:
        """Answer the path that *parts* are of. Raises Failure."""
        if parts[0] in _HEALTH:
            return self._health(request, parts)
        if parts == ("openapi", "v2") and request.headers.get("accept", "").startswith(_OPENAPI_V2):
            return _NO_SCHEMAS
        made = self._made(request, parts)
        if made is None:
            return _NOTHING if parts[:2] == ("openapi", "v3") else PAGE_NOT_FOUND
        if request.method != "GET" and (parts[0] != "apis" or len(parts) == 1):
            raise not_allowed()
        if parts[0] in _REPRESENTATIONS:
            check_media(request.headers.get("accept", ""), _REPRESENTATIONS[parts[0]])
        elif parts[0] == "apis":
            wanted(request.headers.get("accept", ""))
        return Response(200, made if isinstance(made, bytes) else encode(made))

    def _health(self, request: Request, parts: tuple[str, ...]) -> Response:
        if len(parts) > 2 or (len(parts) == 2 and parts[1] not in _CHECKS):
            return PAGE_NOT_FOUND
        if len(parts) == 1 and any(key == "verbose" for key, _ in request.query):
            lines = "".join(f"[+]{check} ok\n" for check in _CHECKS)
            return Response(200, f"{lines}{parts[0]} check passed\n".encode(), "text/plain; charset=utf-8")
        return _OK

    def _made(self, request: Request, parts: tuple[str, ...]) -> JsonObject | bytes | None:
        kinds = self._catalogue.kinds
        match parts:
            case ("",):
                return self._paths()
            case ("version",):
                return discovery.VERSION
            case ("api",):
                return discovery.core_versions(request.headers.get("host", "127.0.0.1"))
            case ("api", version):
                found = discovery.resources(kinds, "", version)
                if found is None:
                    raise Failure(404, "NotFound", "the server could not find the requested resource", {})
                return found
            case ("apis",):
                return discovery.groups(kinds)
            case ("apis", group):
                return discovery.group(kinds, group)
            case ("apis", group, version):
                return discovery.resources(kinds, group, version)
            case ("openapi", "v3"):
                return self._openapi.index(kinds)
            case ("openapi", "v3", *rest):
                return self._openapi.document(kinds, "/".join(rest))
        return None

    def _paths(self) -> JsonObject:
        """All paths that can be asked for, as ``/`` lists them."""
        paths = {"/api", "/api/v1", "/apis", "/openapi/v3", "/version", *(f"/{name}" for name in _HEALTH)}
        for kind in self._catalogue.kinds:
            if kind.group:
                paths |= {f"/apis/{kind.group}", f"/apis/{kind.api_version}"}
        return {"paths": sorted(paths)}
