"""Who has to wait, and for how long, after the API server has answered 429."""

import asyncio
import random
from typing import Final

from kargo_py.kube.errors import TooManyRequests
from kargo_py.kube.resources import Resource
from kargo_py.messages import Shown, message

ASKED_TO_KEEP_OFF = message(
    "the server asked not to be sent anything for another {seconds:.0f} s",
    do="The API server is overloaded; it is asked again when that time is over. See its priority and fairness "
    "settings if this is often so.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
STILL_FILLING = message(
    "the server is still filling its cache of {resource}, and asked not to be asked for another {seconds:.0f} s",
    do="Nothing, if the API server or etcd has started a moment ago: it is asked again when that time is over. If it "
    "stays so, look for what the API server's log says of that cache (`cacher`).",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)

_FILLING: Final = "storage is (re)initializing"
"""So the message of a 429 begins to lists and watches of a kind whose watch cache is not ready; all else is served.

It asks for one second at first and for 30 after a minute: k8s.io/apiserver, pkg/storage/cacher, ready.go and util.go.
"""
_FROM_THE_CACHE: Final = frozenset({"list", "watch"})


class Gates:
    """Shut while the server asked not to be sent anything; every request to it passes here.

    Lists and watches of a kind have one more gate, for when it is only this kind that cannot be served yet.
    """

    def __init__(self, patience: float) -> None:
        """*patience*: seconds that a request waits at most."""
        self._patience = patience
        self._opens = 0.0
        self._kind_opens: dict[Resource, float] = {}

    async def passed(self, verb: str, resource: Resource, request: str) -> None:
        """Wait until the gates are open; raises TooManyRequests at once if that takes too long.

        *request* says in the error what was not sent.
        """
        now = asyncio.get_running_loop().time
        kind_opens = self._kind_opens if verb in _FROM_THE_CACHE else {}
        while (left := max(self._opens, kind_opens.get(resource, 0.0)) - now()) > 0:
            if left > self._patience:
                filling = kind_opens.get(resource, 0.0) > self._opens
                text = STILL_FILLING(resource=resource, seconds=left) if filling else ASKED_TO_KEEP_OFF(seconds=left)
                error = TooManyRequests(429, "TooManyRequests", text, request=request)
                error.retry_after = left
                raise error
            # Jitter, so that not all that waited come back in the same instant.
            await asyncio.sleep(left + random.random() * min(left, 1.0))  # noqa: S311 - no secret

    def close(self, seconds: float, resource: Resource, error: TooManyRequests) -> None:
        """Keep off for *seconds*, as *error* asks: from everything, or from lists and watches of *resource* only."""
        opens = asyncio.get_running_loop().time() + seconds
        if error.message.startswith(_FILLING):
            self._kind_opens[resource] = max(self._kind_opens.get(resource, 0.0), opens)
        else:
            self._opens = max(self._opens, opens)


class Throttling:
    """How long one request has been put off by 429."""

    def __init__(self, tries: int, patience: float) -> None:
        """*tries* and seconds of *patience*, in all."""
        self._tries_left = tries
        self._patience = patience
        self._backoff = 0.25

    @property
    def exhausted(self) -> bool:
        """Whether the request is given up."""
        return self._tries_left <= 0 or self._patience < 0

    def seconds(self, error: TooManyRequests) -> float:
        """How long to keep off: as long as the server asked, or ever longer if it did not say."""
        self._tries_left -= 1
        self._backoff = min(self._backoff * 2, 8.0)
        wait = self._backoff if error.retry_after is None else max(error.retry_after, 0.1)
        self._patience -= wait
        return wait
