"""Who may do what: whoever has the token everything, everybody else what the real server's default roles allow.

Those are the four paths below. A request without credentials is one of ``system:anonymous`` and forbidden (403); one
with a wrong token is refused (401).
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping, Sequence

from kargo_py.local.apiserver.attributes import Attributes, attributes
from kargo_py.local.apiserver.failures import Failure, qualified
from kargo_py.local.apiserver.wire import Request

ANONYMOUS = "system:anonymous"

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
"""ClusterRole system:public-info-viewer, which is bound to system:unauthenticated."""

_SPACE_BEFORE_TOKEN = "the provided Authorization header contains extra space before the bearer token, and is ignored"  # noqa: S105 - a warning, no secret


def make_token() -> str:
    """A new bearer token."""
    return secrets.token_urlsafe(32)


class Guard:
    """Knows the tokens, and whose they are."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        for token in tokens:
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError("a token is printable ASCII without spaces")
        self._users = {token.encode(): user for token, user in tokens.items()}

    def refusal(self, request: Request) -> tuple[Failure, Sequence[str]] | None:
        """Why *request* is not let in, and warnings that go with it; None if it is. Its body is not looked at."""
        token, warnings = _bearer_token(request.headers.get("authorization", ""))
        if token:
            return None if self._owner(token) is not None else (Failure(401, "Unauthorized", "Unauthorized"), ())
        if request.method == "GET" and request.path in _OPEN_PATHS:
            return None
        return _forbidden(attributes(request)), warnings

    def user(self, request: Request) -> str:
        """Whose request it is that was let in."""
        return self._owner(_bearer_token(request.headers.get("authorization", ""))[0]) or ANONYMOUS

    def _owner(self, token: str) -> str | None:
        given = token.encode()
        found = None
        for known, user in self._users.items():
            # All are compared, so that the time says nothing.
            if hmac.compare_digest(given, known):
                found = user
        return found


def _bearer_token(header: str) -> tuple[str, Sequence[str]]:
    """The token, or "" where there is none, and warnings."""
    parts = header.strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return "", ()
    return parts[1], (_SPACE_BEFORE_TOKEN,) if not parts[1] and len(parts) == 3 else ()


def _forbidden(asked: Attributes) -> Failure:
    headers = {"X-Content-Type-Options": "nosniff"}
    who = f'User "{ANONYMOUS}" cannot {asked.verb}'
    if not asked.resource:
        why = _escaped(f"{who} path {_quoted(asked.path)}")
        return Failure(403, "Forbidden", f"forbidden: {why}", {}, headers)
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f"in the namespace {_quoted(asked.namespace)}" if asked.namespace else "at the cluster scope"
    why = _escaped(f"{who} resource {_quoted(resource)} in API group {_quoted(asked.group)} {where}")
    subject = qualified(asked.group, asked.resource)
    if asked.name:
        subject += f" {_quoted(asked.name)}"
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    given = {key: value for key, value in details.items() if value}
    return Failure(403, "Forbidden", f"{subject} is forbidden: {why}", given, headers)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """As the real server writes into this message what came from the request's line."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
