"""What can go wrong when talking to a Kubernetes API server, as types.

Three families, told apart by what is known afterwards:

* :class:`ApiError`: the server answered and said no. It carries the server's ``Status``.
* :class:`Unreachable`: the request was certainly not carried out (refused connection, DNS, TLS, no credentials).
* :class:`OutcomeUnknown`: a *write* that may or may not have been carried out (5xx, reset, time-out). Whoever sees it
  must look before deciding anything else. For reads the same causes are :class:`ConnectionLost` or
  :class:`ServerError`.
"""

from __future__ import annotations

from typing import Any

from kargo_py.messages import Shown, message

SAID_NOTHING = message(
    "the server answered {code} without saying why",
    do="The number is HTTP's. Look at the log of the API server, or of what stands before it.",
    shown=Shown.COMMAND_LINE | Shown.PROMOTION | Shown.LOG,
)


class KubeError(Exception):
    """Base of what this package raises; ``request`` names what was asked, e.g. ``patch promotions/status dev/x``."""

    def __init__(self, message: str, *, request: str = "") -> None:
        super().__init__(f"{request}: {message}" if request else message)
        self.message = message
        self.request = request


class ApiError(KubeError):
    """The server answered with an error; ``code`` is HTTP's, ``reason`` the Kubernetes Status reason."""

    def __init__(
        self, code: int, reason: str, message: str, *, request: str = "", status: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, request=request)
        self.code = code
        self.reason = reason
        self.status = status


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: no, wrong or expired credentials."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin refuses."""


class NotFound(ApiError):
    """404: no such object, or no such resource (see :attr:`resource_missing`)."""

    @property
    def resource_missing(self) -> bool:
        """True when the server does not serve the resource at all (CRD not installed), not just the object."""
        return not ((self.status or {}).get("details") or {}).get("name")


class Conflict(ApiError):
    """409: the resourceVersion we decided on is no longer the newest."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name exists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object or patch does not pass validation."""


class TooManyRequests(ApiError):
    """429: not carried out; ``retry_after`` is in seconds (the server's word, or None)."""

    retry_after: float | None = None


class ServerError(ApiError):
    """5xx as the answer to a read."""


class Unreachable(KubeError):
    """The request did not reach the server: certainly not carried out."""


class ConnectionLost(KubeError):
    """A read or watch broke off or timed out."""


class OutcomeUnknown(KubeError):
    """A write whose outcome is not known; ``__cause__`` is what was seen."""


class DecodeError(KubeError):
    """The server's answer is not what the codec can read."""


class ConfigError(KubeError):
    """A kubeconfig or credentials that cannot be used; the text names the file and what to do."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(status: object, *, request: str = "", code: int = 0) -> ApiError:
    """The typed error for a ``Status`` body (or whatever a proxy sent instead of one) and HTTP *code*."""
    body: dict[str, Any] = status if isinstance(status, dict) else {}
    number = code or (body["code"] if isinstance(body.get("code"), int) else 500)
    reason = str(body.get("reason") or "")
    message = " ".join(str(body.get("message") or "").split()) or SAID_NOTHING(code=number)
    if number == 409:
        kind: type[ApiError] = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif number >= 500:
        kind = ServerError
    else:
        kind = _BY_CODE.get(number, ApiError)
    return kind(number, reason, message, request=request, status=body or None)
