"""A Kubernetes API server without sockets: one request in, one answer or stream out.

It serves the built-in kinds of :mod:`~kargo_py.local.apiserver.builtin` and whatever CustomResourceDefinitions are
created, and answers as kube-apiserver 1.34 does. It has no threads and reads no clock but the one that it is given and
the event loop's, so a run under simulated time with a seeded Random repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from kargo_py.local.apiserver import builtin, patching, reading, selectors, watching
from kargo_py.local.apiserver.background import Background
from kargo_py.local.apiserver.bodies import MAX_BODY, Undecodable
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.crd import DefinitionRules
from kargo_py.local.apiserver.decoding import document, object_of
from kargo_py.local.apiserver.definitions import Definitions
from kargo_py.local.apiserver.documents import Documents, not_allowed
from kargo_py.local.apiserver.failures import Failure, bad_request, not_found, unknown_path
from kargo_py.local.apiserver.garbage import GarbageCollector
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.namespaces import INITIAL, Namespaces
from kargo_py.local.apiserver.negotiation import Wanted, check_media, prefers_yaml, wanted
from kargo_py.local.apiserver.options import (
    DeleteOptions,
    ListOptions,
    WriteOptions,
    delete_options,
    list_options,
    write_options,
)
from kargo_py.local.apiserver.routing import BadPath, OtherPath, ResourcePath, parse
from kargo_py.local.apiserver.store import Store, Stored
from kargo_py.local.apiserver.table import included, partial, partial_list, table
from kargo_py.local.apiserver.views import as_item
from kargo_py.local.apiserver.wire import JsonObject, Request, Response, Stream, encode
from kargo_py.local.apiserver.writing import Target, Writer, Written

_READS: Final = frozenset({"GET", "HEAD"})
_BAD_PATH: Final = Response(400, b"400 Bad Request", "text/plain; charset=utf-8")


class ApiServer:
    """The server. ``store`` has the objects and their history, and tells ``store.observers`` of every write."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        random: Random | None = None,
        kinds: Iterable[Kind] | None = None,
        background_delay: Callable[[], float] | None = None,
    ) -> None:
        """*now* gives the time that objects are stamped with.

        *random* decides uids, generated names and how long a watch lasts. *background_delay* gives the seconds that
        garbage collection and the like take for each step; by default they follow at the loop's next turn.
        """
        self.store = Store()
        self._now = now
        self._random = random or Random()  # noqa: S311 - names, no secrets
        self.catalogue = Catalogue(self.store, kinds or builtin.kinds(DefinitionRules()))
        self._writer = Writer(self.store, self.catalogue, now, self._random)
        self._documents = Documents(self.catalogue)
        self.background = Background(background_delay)
        parts = self.store, self.catalogue, self._writer, self.background
        self.store.observers += [
            Definitions(*parts, now).observe,
            GarbageCollector(*parts).observe,
            Namespaces(*parts, now).observe,
        ]
        self._create_namespaces()

    def _create_namespaces(self) -> None:
        kind = self.catalogue.find("", "v1", "namespaces")
        if kind is not None:
            for name in INITIAL:
                obj: JsonObject = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"name": name}}
                kind.rules.prune(obj)
                kind.rules.default(obj)
                self._writer.create(Target(kind, "", name), obj, WriteOptions(manager="kube-apiserver"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all watches and the work in the background."""
        self.background.close()
        for collection in self.store:
            collection.close()

    async def handle(self, request: Request) -> Response | Stream:
        """Answer *request*. To HEAD it is the answer to GET: who sends it leaves the body away."""
        try:
            return self._answer(request)
        except Failure as failure:
            answer = failure.response()
            if prefers_yaml(request.headers.get("accept", "")):
                answer = _as_yaml(answer, failure.status())
            return answer
        except Undecodable as error:
            return Failure(500, "", str(error)).response()

    def _answer(self, request: Request) -> Response | Stream:
        if len(request.body) > MAX_BODY:
            raise Failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
        try:
            path = parse(request.path)
        except BadPath:
            return _BAD_PATH
        if isinstance(path, OtherPath):
            return self._documents.answer(request, path)
        kind = self.catalogue.find(path.group, path.version, path.plural)
        if kind is None:
            return self._unserved(path)
        if kind.namespaced != bool(path.namespace) and not (
            kind.namespaced and self._is_collection_read(request, path)
        ):
            return self._unserved(path, kind)
        return self._resource(request, path, kind)

    def _is_collection_read(self, request: Request, path: ResourcePath) -> bool:
        return request.method in _READS and not path.name

    def _unserved(self, path: ResourcePath, kind: Kind | None = None) -> Response:
        """Nothing is there, or (with a *kind*) not without a namespace, or in one."""
        if kind is not None and not kind.custom and kind.namespaced and not path.name:
            raise not_allowed()
        return self._documents.missing("apis", path.group) if path.group else self._documents.missing("api")

    # Resources

    def _resource(self, request: Request, path: ResourcePath, kind: Kind) -> Response | Stream:
        warnings = [kind.deprecation] if kind.deprecation else []
        try:
            answer = self._of_resource(request, path, kind, warnings)
        except Failure as failure:
            failure.warnings = warnings
            raise
        return replace(answer, warnings=warnings) if warnings else answer

    def _of_resource(self, request: Request, path: ResourcePath, kind: Kind, warnings: list[str]) -> Response | Stream:
        target = Target(kind, path.namespace, path.name, path.subresource)
        if path.subresource and not self._has(kind, path.subresource):
            if kind.custom:
                raise not_found(kind.group, kind.plural, path.name)
            raise unknown_path()
        if kind.answer is not None and request.method == "POST" and not path.name:
            return self._answered(request, target, kind.answer, warnings)
        verb = _verb(request.method, path)
        if not self._allows(target, verb, request.method):
            if kind.custom:
                verb = verb if verb != "method" else ""
                message = f'{verb} is not supported on resources of kind "{kind.qualified}"'
                raise Failure(405, "MethodNotAllowed", message, {"group": kind.group, "kind": kind.plural})
            raise not_allowed()
        if not kind.custom:
            check_media(request.headers.get("accept", ""), streams=verb == "list")
        match verb:
            case "get" if path.watch:
                return self._watch(request, target)
            case "get":
                return self._get(request, target)
            case "list":
                return self._list(request, target, watch=path.watch)
            case "create":
                return self._create(request, target, warnings)
            case "update":
                return self._update(request, target, warnings)
            case "patch":
                return self._patch(request, target, warnings)
            case "delete":
                return self._delete(request, target)
            case _:
                return self._delete_all(request, target)

    def _has(self, kind: Kind, subresource: str) -> bool:
        if subresource == "status":
            return kind.has_status
        return subresource in kind.subresources

    def _allows(self, target: Target, verb: str, method: str) -> bool:
        kind = target.kind
        if verb not in kind.verbs or (method == "HEAD" and not kind.custom):
            return False
        if target.subresource == "finalize":
            return verb == "update"
        if target.subresource:
            return verb in {"get", "update", "patch"}
        if kind.custom:
            return True
        if verb == "create":
            return not target.name
        return bool(target.name) or verb not in {"update", "patch"}

    # Reads

    def _get(self, request: Request, target: Target) -> Response:
        look = wanted(request.headers.get("accept", ""))
        include = included(request.parameter("includeObject"))
        reading.check_version(request.parameter("resourceVersion"), self.store.version)
        found = self._writer.existing(target)
        if found is None:
            raise target.missing
        return self._respond(200, target.kind, found, look, include)

    def _list(self, request: Request, target: Target, *, watch: bool) -> Response | Stream:
        options = list_options(request, watch_path=watch)
        if options.watch:
            return self._watch(request, target, options)
        look = wanted(request.headers.get("accept", ""))
        collection = self.catalogue.collection(target.kind)
        page = reading.page(collection, target.kind, target.namespace, options, self.store.version)
        return self._listed(target.kind, page.items, page.metadata(), look, options.include_object)

    def _listed(
        self, kind: Kind, items: Sequence[Stored], metadata: JsonObject, look: Wanted, include_object: str
    ) -> Response:
        if look.shape == "PartialObjectMetadata":
            go = "*unstructured.UnstructuredList" if kind.custom else f"*{kind.group or 'core'}.{kind.lists_as}"
            why = f"you requested PartialObjectMetadata, but the requested object is a list ({go})"
            raise Failure(406, "NotAcceptable", why)
        version = f"meta.k8s.io/{look.version}"
        objects = (item.obj for item in items)
        made: JsonObject
        if look.shape == "Table":
            include = included(include_object)
            made = table(kind, objects, metadata=metadata, now=self._now(), include=include, meta_version=version)
        elif look.shape:
            made = partial_list(objects, metadata=metadata, meta_version=version)
        else:
            if kind.custom:
                metadata = {"continue": "", **metadata}
            head = {"kind": kind.lists_as, "apiVersion": kind.api_version, "metadata": metadata}
            if look.yaml:
                bare = [msgspec.json.decode(as_item(item, kind)) for item in items]
                return _as_yaml(Response(200, b""), {**head, "items": bare})
            data = [as_item(item, kind) for item in items]
            return Response(200, encode(head)[:-1] + b',"items":[' + b",".join(data) + b"]}")
        return _as_yaml(Response(200, b""), made) if look.yaml else Response(200, encode(made))

    def _watch(self, request: Request, target: Target, options: ListOptions | None = None) -> Stream:
        options = options or list_options(request, watch_path=True)
        look = wanted(request.headers.get("accept", ""), stream=True)
        kind = target.kind
        collection = self.catalogue.collection(kind)
        watched = watching.subject(collection, kind, target.namespace, options, name=target.name)
        make: Callable[[Sequence[JsonObject], bool], JsonObject] | None = None
        version = f"meta.k8s.io/{look.version}"
        if look.shape == "Table":
            include = included(options.include_object)

            def make(objects: Sequence[JsonObject], headers: bool) -> JsonObject:
                metadata = {"resourceVersion": objects[0]["metadata"]["resourceVersion"]}
                return table(
                    kind,
                    objects,
                    metadata=metadata,
                    now=self._now(),
                    include=include,
                    headers=headers,
                    meta_version=version,
                )

        elif look.shape:

            def make(objects: Sequence[JsonObject], headers: bool) -> JsonObject:  # noqa: ARG001 - called as the one above
                return partial(objects[0], version)

        lines = watching.lines(
            watched,
            options,
            now=lambda: self.store.version,
            random=self._random,
            render=watching.renderer(make),
        )
        return Stream(200, lines)

    # Writes

    def _create(self, request: Request, target: Target, warnings: list[str]) -> Response:
        look = wanted(request.headers.get("accept", ""))
        options = write_options(request, "CreateOptions")
        obj = object_of(request, target.kind, options.validation, warnings, self.catalogue)
        written = self._writer.create(target, obj, options)
        return self._written(written, target, look, warnings)

    def _answered(
        self, request: Request, target: Target, answer: Callable[[JsonObject], JsonObject], warnings: list[str]
    ) -> Response:
        options = write_options(request, "CreateOptions")
        obj = object_of(request, target.kind, options.validation, warnings, self.catalogue)
        return Response(201, encode(answer(obj)))

    def _update(self, request: Request, target: Target, warnings: list[str]) -> Response:
        if not target.name:
            raise bad_request("name must be provided")
        look = wanted(request.headers.get("accept", ""))
        options = write_options(request, "UpdateOptions")
        obj = object_of(request, target.kind, options.validation, warnings, self.catalogue)
        written = self._writer.update(target, obj, options)
        return self._written(written, target, look, warnings)

    def _patch(self, request: Request, target: Target, warnings: list[str]) -> Response:
        media = patching.check_type(request, target.kind)
        if not target.name:
            raise bad_request("name must be provided")
        look = wanted(request.headers.get("accept", ""))
        options = write_options(request, "PatchOptions", apply=media == patching.APPLY)
        written = patching.patch(self._writer, self.catalogue, target, request, options, warnings)
        return self._written(written, target, look, warnings)

    def _written(self, written: Written, target: Target, look: Wanted, warnings: list[str]) -> Response:
        warnings += target.kind.rules.warnings(written.stored.obj, written.old)
        return self._respond(201 if written.created else 200, target.kind, written.stored, look)

    def _delete(self, request: Request, target: Target) -> Response:
        look = wanted(request.headers.get("accept", ""))
        written = self._writer.delete(target, self._delete_options(request))
        if written.created or target.kind.plural == "serviceaccounts":
            return self._respond(200, target.kind, written.stored, look)
        return _status(_success(target, written))

    def _delete_all(self, request: Request, target: Target) -> Response:
        look = wanted(request.headers.get("accept", ""))
        options = list_options(request, watch_path=False)
        selectors.labels(
            options.label_selector
        )  # what cannot be read in the query is told before the body is looked at
        selectors.field_terms(options.field_selector)
        deletion = self._delete_options(request)
        kind = target.kind
        page = reading.page(self.catalogue.collection(kind), kind, target.namespace, options, self.store.version)
        for item in page.items:
            metadata = item.obj["metadata"]
            self._writer.delete(Target(kind, metadata.get("namespace", ""), metadata["name"]), deletion)
        return self._listed(kind, page.items, page.metadata(), look, "")

    def _delete_options(self, request: Request) -> DeleteOptions:
        if not request.body:
            return delete_options(request)
        try:
            body = document(request).value
        except Undecodable as error:
            raise Failure(500, "", error.unrecognized) from error
        return delete_options(request, body)

    def _respond(self, code: int, kind: Kind, stored: Stored, look: Wanted, include: str = "Metadata") -> Response:
        if not look.shape:
            response = Response(code, stored.data)
            return _as_yaml(response, stored.obj) if look.yaml else response
        version = f"meta.k8s.io/{look.version}"
        if look.shape == "Table":
            metadata = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
            made = table(kind, [stored.obj], metadata=metadata, now=self._now(), include=include, meta_version=version)
        elif look.shape == "PartialObjectMetadata":
            made = partial(stored.obj, version)
        else:
            raise Failure(500, "", "content is not a list")
        response = Response(code, encode(made))
        return _as_yaml(response, made) if look.yaml else response


def _verb(method: str, path: ResourcePath) -> str:
    if method in _READS:
        return "get" if path.name else "list"
    if method == "DELETE":
        return "delete" if path.name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, "method")


def _success(target: Target, written: Written) -> JsonObject:
    kind = target.kind
    details = {"name": target.name, "group": kind.group, "kind": kind.plural}
    shown_details = {key: value for key, value in details.items() if value}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**shown_details, "uid": written.stored.obj["metadata"]["uid"]},
    }


def _status(status: JsonObject) -> Response:
    return Response(200, encode(status))


def _as_yaml(response: Response, value: Any) -> Response:
    import yaml  # noqa: PLC0415  (few ask for it, and its import is slow)

    plain = msgspec.json.decode(encode(value))  # of exact types, in which nothing stands twice
    text = yaml.dump(plain, Dumper=yaml.CSafeDumper, default_flow_style=False, allow_unicode=True)
    return Response(response.code, text.encode(), "application/yaml", response.headers, response.warnings)
