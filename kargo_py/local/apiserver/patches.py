"""The patches of Kubernetes but apply: JSON patch, merge patch, strategic merge patch.

Pure functions of a document and a patch, as JSON; arguments are not changed, and results may share with them. What is
wrong with a patch raises the Failure that a client of the real server gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from kargo_py.local.apiserver.bodies import MAX_DEPTH, Undecodable, decode_json
from kargo_py.local.apiserver.failures import Failure, bad_request
from kargo_py.local.apiserver.gotypes import json_type
from kargo_py.local.apiserver.wire import JsonObject, encode, identical

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
_Container: TypeAlias = dict[str, Any] | list[Any]


class _DoesNotApply(Exception):
    """A patch that is well formed, but not for this document; the real server does not tell clients why."""


def does_not_apply() -> Failure:
    """422 for a patch that does not fit the document."""
    return Failure(422, "Invalid", "the server rejected our request due to an error in our request", {})


# JSON patch


def json_patch(doc: JsonObject, body: bytes | list[Any]) -> Any:
    """Apply an RFC 6902 patch; the result need not be an object any more.

    Raises:
        Failure: 400 for what is no patch, 413 for more than MAX_OPERATIONS, 422 for one that does not apply.
    """
    operations = _operations(body)
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise Failure(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    editor = _Editor(doc)
    try:
        for operation in operations:
            editor.do(operation)
    except _DoesNotApply:
        raise does_not_apply() from None
    if _is_deeper(editor.root, MAX_DEPTH):
        raise does_not_apply()
    return editor.root


def _operations(body: bytes | list[Any]) -> list[JsonObject]:
    listed = _loaded(body) if isinstance(body, bytes) else body
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise _undecodable(f"cannot unmarshal {json_type(listed)} into Go value of type []handlers.jsonPatchOp")
    for operation in listed:
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise _undecodable(f"cannot unmarshal {json_type(operation)} into Go value of type handlers.jsonPatchOp")
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name, ""), (str, type(None))):
                kind = json_type(operation[name])
                raise _undecodable(f"cannot unmarshal {kind} into Go struct field jsonPatchOp.{name} of type string")
    return [operation or {} for operation in listed]


def _undecodable(problem: str) -> Failure:
    return bad_request(f"error decoding patch: json: {problem}")


def _loaded(body: bytes) -> Any:
    try:
        return decode_json(body).value
    except Undecodable as error:
        raise bad_request(f"error decoding patch: {error}") from error


class _Editor:
    """A document that operations are done to. Containers are copied before their first change."""

    def __init__(self, doc: Any) -> None:
        self.root = doc
        self._own: dict[int, _Container] = {}  # by id, and kept so that no other object gets the id
        self._copied = 0
        self._actions: dict[Any, Callable[[JsonObject], None]] = {
            "add": self._add,
            "remove": self._remove,
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }

    def do(self, operation: JsonObject) -> None:
        """Do one operation, or raise _DoesNotApply."""
        action = self._actions.get(operation.get("op"))
        if action is None:
            raise _DoesNotApply
        action(operation)

    def _add(self, operation: JsonObject) -> None:
        self._insert(_pointer(operation, "path"), operation.get("value"))

    def _remove(self, operation: JsonObject) -> None:
        self._take(_pointer(operation, "path"))

    def _replace(self, operation: JsonObject) -> None:
        pointer = _pointer(operation, "path")
        value = operation.get("value")
        if not pointer:
            if not isinstance(value, (dict, list)):
                raise _DoesNotApply
            self.root = value
            return
        container, last = self._container(pointer, writing=True)
        if isinstance(container, dict):
            container[last] = value  # also where there was nothing: the real server is as lenient
        else:
            container[_index(last, len(container) - 1, len(container))] = value

    def _move(self, operation: JsonObject) -> None:
        source = _pointer(operation, "from")
        value = self._read(source)
        self._take(source)
        self._insert(_pointer(operation, "path"), value)

    def _copy(self, operation: JsonObject) -> None:
        value = self._read(_pointer(operation, "from"))
        # what shares memory here would not on the wire: a few copies of copies could fill any memory
        self._copied += len(encode(value))
        if self._copied > MAX_COPIED_BYTES:
            raise _DoesNotApply
        self._own.clear()  # from here on, a container may be in two places
        self._insert(_pointer(operation, "path"), value)

    def _test(self, operation: JsonObject) -> None:
        pointer = _pointer(operation, "path")
        value = self._read(pointer) if pointer else self.root
        if not identical(value, operation.get("value")):
            raise _DoesNotApply

    def _insert(self, pointer: list[str], value: Any) -> None:
        container, last = self._container(pointer, writing=True)
        if isinstance(container, dict):
            container[last] = value
        elif last == "-":
            container.append(value)
        else:
            container.insert(_index(last, len(container), len(container) + 1), value)

    def _take(self, pointer: list[str]) -> None:
        container, last = self._container(pointer, writing=True)
        if isinstance(container, list):
            del container[_index(last, len(container) - 1, len(container))]
        elif last in container:
            del container[last]
        else:
            raise _DoesNotApply

    def _read(self, pointer: list[str]) -> Any:
        container, last = self._container(pointer, writing=False)
        if isinstance(container, dict):
            return container.get(last)
        return container[_index(last, len(container) - 1, len(container))]

    def _container(self, pointer: list[str], *, writing: bool) -> tuple[_Container, str]:
        """What the last part of *pointer* is in."""
        if not pointer:
            raise _DoesNotApply
        if writing:
            self.root = self._owned(self.root)
        node = self.root
        for part in pointer[:-1]:
            if isinstance(node, dict):
                place: Any = part
                below = node.get(part)
            else:
                place = _index(part, len(node) - 1, len(node))
                below = node[place]
            if not isinstance(below, (dict, list)):
                raise _DoesNotApply
            if writing:
                below = node[place] = self._owned(below)
            node = below
        return node, pointer[-1]

    def _owned(self, container: _Container) -> _Container:
        if id(container) in self._own:
            return container
        copy: _Container = dict(container) if isinstance(container, dict) else list(container)
        self._own[id(copy)] = copy
        return copy


def _pointer(operation: JsonObject, name: Literal["path", "from"]) -> list[str]:
    pointer = operation.get(name)
    if pointer is None:
        raise _DoesNotApply
    # what stands before the first "/" is not looked at
    return [part.replace("~1", "/").replace("~0", "~") for part in str(pointer).split("/")[1:]]


def _index(part: str, highest: int, length: int) -> int:
    """An index as Go reads it; negative ones count from the end."""
    digits = part[1:] if part[:1] in {"+", "-"} else part
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise _DoesNotApply
    index = int(part)
    if not -length <= index <= highest:
        raise _DoesNotApply
    return index + length if index < 0 else index


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            below
            for node in level
            for below in (node.values() if isinstance(node, dict) else node)
            if isinstance(below, (dict, list))
        ]
        if not level:
            return False
    return True


# Merge patch


def merge_patch(doc: JsonObject, patch: bytes | JsonObject) -> JsonObject:
    """Apply an RFC 7386 patch.

    Raises:
        Failure: 400 for a body that is not an object.
    """
    loaded = _loaded(patch) if isinstance(patch, bytes) else patch
    if loaded is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(loaded, dict):
        raise _undecodable(f"cannot unmarshal {json_type(loaded)} into Go value of type map[string]interface {{}}")
    return _merged(doc, loaded)


def _merged(doc: JsonObject, patch: JsonObject) -> JsonObject:
    merged = dict(doc)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
            continue
        before = merged.get(name)
        if not isinstance(before, dict):
            merged[name] = without_nulls(value)
        elif isinstance(value, dict):
            merged[name] = _merged(before, value)
        else:
            merged[name] = value
    return merged


def without_nulls(value: Any) -> Any:
    """*value* without the null fields of its objects; null items of its lists stay."""
    if isinstance(value, dict):
        return {name: without_nulls(below) for name, below in value.items() if below is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
