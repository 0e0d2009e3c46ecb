"""How the server says no: field errors in Kubernetes' words, and the ``Status`` object that carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kargo_py.local.apiserver.gotext import Verbatim, compact, number, quoted
from kargo_py.local.apiserver.wire import JsonObject, Response, encode


class Cause(Enum):
    """Kinds of field error: the ``reason`` in ``details.causes`` and the words in the message.

    Source: k8s.io/apimachinery/pkg/util/validation/field/errors.go.
    """

    NOT_FOUND = "FieldValueNotFound", "Not found"
    REQUIRED = "FieldValueRequired", "Required value"
    DUPLICATE = "FieldValueDuplicate", "Duplicate value"
    INVALID = "FieldValueInvalid", "Invalid value"
    UNSUPPORTED = "FieldValueNotSupported", "Unsupported value"
    FORBIDDEN = "FieldValueForbidden", "Forbidden"
    TOO_LONG = "FieldValueTooLong", "Too long"
    TOO_MANY = "FieldValueTooMany", "Too many"
    TYPE = "FieldValueTypeInvalid", "Invalid value"

    @property
    def reason(self) -> str:
        """What stands in ``details.causes[].reason``."""
        return self.value[0]

    @property
    def words(self) -> str:
        """How the message begins."""
        return self.value[1]


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
_VALUELESS = frozenset({Cause.REQUIRED, Cause.FORBIDDEN, Cause.TOO_LONG})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. ``path`` is as Kubernetes writes it: ``spec.items[0].name``."""

    cause: Cause
    path: str
    value: Any = ABSENT
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the path."""
        text = self.cause.words
        if self.cause not in _VALUELESS and self.value is not ABSENT:
            text += f": {shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    def as_cause(self) -> JsonObject:
        """The entry in ``details.causes``."""
        return {"reason": self.cause.reason, "message": self.body, "field": self.path}


def shown(value: Any) -> str:
    """A value as Kubernetes shows it in an error."""
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return number(value)
    return compact(value)


@dataclass(eq=False)
class Failure(Exception):
    """A request that is refused; becomes a ``Status`` with ``status: Failure``.

    An empty reason is left out, as the real server does for errors of its parts; empty details are shown.
    """

    code: int
    reason: str
    message: str
    details: JsonObject | None = None
    headers: dict[str, str] = field(default_factory=dict)
    metadata: JsonObject = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"

    def status(self) -> JsonObject:
        """The ``Status`` object."""
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def response(self) -> Response:
        """The answer to the request that failed."""
        return Response(self.code, encode(self.status()), headers=self.headers, warnings=self.warnings)


def bad_request(message: str) -> Failure:
    """400."""
    return Failure(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> Failure:
    """404 for an object."""
    return Failure(
        404, "NotFound", f"{qualified(group, plural)} {quoted(name)} not found", _details(group, kind=plural, name=name)
    )


def unknown_path() -> Failure:
    """404 for a path that nothing is served under."""
    return Failure(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, plural: str, name: str, *, leaving: bool = False) -> Failure:
    """409 for a create; *leaving* if what is there is being deleted."""
    message = (
        f"{'object is being deleted: ' if leaving else ''}{qualified(group, plural)} {quoted(name)} already exists"
    )
    return Failure(409, "AlreadyExists", message, _details(group, kind=plural, name=name))


def conflict(group: str, plural: str, name: str, why: str) -> Failure:
    """409 for an update or a precondition."""
    message = f"Operation cannot be fulfilled on {qualified(group, plural)} {quoted(name)}: {why}"
    return Failure(409, "Conflict", message, _details(group, kind=plural, name=name))


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Failure:
    """422 with one cause for each field; *kind* is the kind here, not the plural."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind}.{group}" if group else kind
    details = _details(group, kind=kind, name=name)
    details["causes"] = [error.as_cause() for error in errors]
    return Failure(422, "Invalid", f"{subject} {quoted(name)} is invalid: {listed}", details)


def internal(message: str) -> Failure:
    """500 without a reason: how the real server answers where it did not expect an error."""
    return Failure(500, "", message)


def expired(message: str) -> Failure:
    """410: a resourceVersion or continue token that is too old."""
    return Failure(410, "Expired", message)


def qualified(group: str, plural: str) -> str:
    """``stages.kargo.akuity.io``, or only the plural in the core group."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, *, kind: str, name: str) -> JsonObject:
    details: JsonObject = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details
