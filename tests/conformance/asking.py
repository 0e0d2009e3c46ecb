"""Requests as values, and what they must be answered with: the language of the suite's tables.

``NS`` in a path, a body or an answer stands for the namespace that a test has for itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.conformance.definitions import GROUP
from tests.conformance.servers import Answer, JsonObject, Server

NS: Final = "the-namespace-of-this-test"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to make."""

    method: str
    path: str
    body: Any = None
    as_: str = "application/json"
    headers: JsonObject = field(default_factory=dict)

    def of(self, server: Server, namespace: str) -> Answer:
        """Send it; the answer is as if the namespace were called NS."""
        body = self.body
        if body is not None and not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).replace(NS, namespace)
        answer = server.send(self.method, self.path.replace(NS, namespace), body, as_=self.as_, **self.headers)
        return Answer(
            answer.code,
            answer.headers,
            answer.body.replace(namespace.encode(), NS.encode()),
            [warning.replace(namespace, NS) for warning in answer.warnings],
        )


def get(path: str, **headers: str) -> Asked:
    """GET."""
    return Asked("GET", path, headers=headers)


def post(path: str, body: object, as_: str = "application/json", **headers: str) -> Asked:
    """POST."""
    return Asked("POST", path, body, as_, headers)


def put(path: str, body: object, as_: str = "application/json") -> Asked:
    """PUT."""
    return Asked("PUT", path, body, as_)


def patch(path: str, body: object, as_: str) -> Asked:
    """PATCH."""
    return Asked("PATCH", path, body, as_)


def delete(path: str, body: object = None) -> Asked:
    """DELETE."""
    return Asked("DELETE", path, body)


def case(name: str, asked: Asked, expected: object = None, *marks: pytest.MarkDecorator) -> Any:
    """A row of a table: what is asked, and the outcome (see :func:`outcome`)."""
    return pytest.param(asked, expected, id=name, marks=marks)


def outcome(answer: Answer) -> object:
    """What an answer says, without what changes from run to run: a refusal, or a code and text."""
    try:
        decoded = answer.json
    except (AssertionError, ValueError):
        return text(answer.code, answer.body.decode(errors="replace"))
    if decoded.get("kind") == "Status" and decoded.get("status") == "Failure":
        return _settled(answer.refusal)
    return done(answer.code, *answer.warnings)


def _settled(value: Any) -> Any:
    """Write … for what changes from run to run: an object that is shown within a message, uids, versions."""
    match value:
        case str():
            value = re.sub(r'Invalid value: "\{\\".*\}": ', 'Invalid value: "{…}": ', value, flags=re.DOTALL)
            value = re.sub(r"missing in '\{.*managedFields.*\}'", "missing in '{…}'", value)
            value = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "…", value)
            return re.sub(r"ResourceVersion in record \([0-9]+\)", "ResourceVersion in record (…)", value)
        case list():
            return [_settled(item) for item in value]
        case dict():
            return {key: _settled(item) for key, item in value.items()}
    return value


def done(code: int, *warnings: str) -> JsonObject:
    """The request was carried out."""
    return {"code": code, "warnings": list(warnings)}


def text(code: int, body: str) -> JsonObject:
    """An answer that is no Kubernetes object."""
    return {"code": code, "text": body}


def refused(code: int, reason: str, message: str, **details: Any) -> JsonObject:
    """What the Status of a refused request says."""
    status: JsonObject = {"code": code, "message": message}
    if reason:
        status["reason"] = reason
    return status | ({"details": details} if details else {})


def bad(message: str) -> JsonObject:
    """400."""
    return refused(400, "BadRequest", message)


def not_found(plural: str, name: str, group: str = GROUP) -> JsonObject:
    """404 for an object."""
    return refused(404, "NotFound", f'{_dotted(plural, group)} "{name}" not found', **_details(plural, name, group))


def invalid(kind: str, name: str, *causes: tuple[str, str, str], group: str = GROUP) -> JsonObject:
    """422 with its causes: field, reason without ``FieldValue``, message."""
    texts = [f"{path}: {message}" for path, _, message in causes]
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": f"FieldValue{reason}", "message": message, "field": path} for path, reason, message in causes]
    message = f'{_dotted(kind, group)} "{name}" is invalid: {shown}'
    return refused(422, "Invalid", message, **_details(kind, name, group), causes=listed)


UNCHECKED: Final = (
    "<nil>",
    "Invalid",
    (
        "Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    ),
)
"""The cause beside others that says that CEL rules were not run."""


def _dotted(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name


def _details(kind: str, name: str, group: str) -> JsonObject:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
