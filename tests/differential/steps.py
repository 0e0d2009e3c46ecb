"""Requests as values that can be sent to two servers, printed, and made smaller.

``SEQ`` in a path or a body stands for the sequence's own name, which is its namespace and begins the names of its
cluster-wide objects. A string in a body or a query that begins with ``@`` and a path stands for what the server that is
asked answered about that object before: each has versions and uids of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

JsonObject = dict[str, Any]

SEQ: Final = "seq0"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

VERSION: Final = "@version "
"""The last resourceVersion of the object at the path that follows; "1" where none was seen."""
OLD_VERSION: Final = "@old-version "
"""Its first one."""
UID: Final = "@uid "
"""Its uid."""
LIST_VERSION: Final = "@list-version"
"""The first resourceVersion that a list told."""
CONTINUE: Final = "@continue"
"""The last token to continue with."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Any = None
    """JSON; text is sent as it is, None is no body."""
    media: str = "application/json"
    accept: str = "application/json"
    onto: bool = False
    """The body is merged into the object as it was last seen: what a client sends that reads, changes and updates."""
    watch: bool = False
    """A watch, made when all the other steps are done."""

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        about = [self.method, self.target]
        if self.accept != "application/json":
            about.append(f"(Accept: {self.accept})")
        if self.body is not None:
            body = self.body if isinstance(self.body, str) else json.dumps(self.body)
            about += [f"({self.media})"] * (self.media != "application/json")
            about.append(("merged into what was read: " if self.onto else "") + body)
        return " ".join(about)

    def with_body(self, body: Any) -> Step:
        """The same with another body."""
        return replace(self, body=body)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said; of a watch, its events."""

    code: int
    body: Any
    warnings: Sequence[str] = ()
    content_type: str = ""


def merged(base: Any, change: Any) -> Any:
    """*base* changed as a JSON merge patch would."""
    if not isinstance(change, dict):
        return change
    made = dict(base) if isinstance(base, dict) else {}
    for name, value in change.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made
