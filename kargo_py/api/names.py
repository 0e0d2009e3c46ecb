"""Every annotation key, label key and naming rule of Kargo's API, and ours.

The exact strings are Kargo's (``api/v1alpha1/annotations.go``, ``labels.go``, ``event_types.go``), the algorithms too:
the same Freight gets the same name from both programs.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha1, sha256
from urllib.parse import urlsplit, urlunsplit

from kargo_py.api.freight import ArtifactReference, Chart, FreightOrigin, GitCommit, Image

ANNOTATION_CREATE_ACTOR = "kargo.akuity.io/create-actor"
ANNOTATION_AUTHORIZED_STAGE = "kargo.akuity.io/authorized-stage"

LABEL_SHARD = "kargo.akuity.io/shard"

INFO_PROMOTION = "kargo.akuity.io/promotion"
"""Name of the entry in an Argo CD operation's info that holds the Promotion's name; Kargo writes and reads it."""

EVENT_PREFIX = "event.kargo.akuity.io/"
"""Prefix of the annotations that Kargo's Events carry."""

UNKNOWN_ACTOR = "unknown actor"
CONTROLLER_USERNAME = "kargo-controller"

_MAX_LABEL = 63
_MAX_NAME = 253


def shorten_label(value: str) -> str:
    """*value* as a label value: longer than 63 characters, it is cut and a hash of the whole is appended."""
    if len(value) <= _MAX_LABEL:
        return value
    return f"{value[:54].rstrip('-')}-{sha256(value.encode()).hexdigest()[:8]}"


# --- Promotion names ------------------------------------------------------------------------------------------------

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80
_ULID_BITS = 128


class UlidSource:
    """Makes strictly increasing lower-case ULIDs, from any thread; *clock* gives seconds, *randbits* random integers.

    Promotions of a Stage are ordered by these, so two made in the same millisecond must differ in the right direction:
    the later one is the earlier one plus one.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, randbits: Callable[[int], int] = secrets.randbits
    ) -> None:
        self._clock = clock
        self._randbits = randbits
        self._last = -1
        self._lock = threading.Lock()

    def new(self) -> str:
        """The next ULID, 26 characters."""
        with self._lock:
            fresh = (int(self._clock() * 1000) << _RANDOM_BITS) | self._randbits(_RANDOM_BITS)
            self._last = value = max(fresh, self._last + 1)
        if value >> _ULID_BITS:
            raise OverflowError("a ULID cannot hold a time after the year 10889")
        return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def promotion_name(stage: str, freight: str, ulid: str) -> str:
    """``<stage>.<ulid>.<first 7 of freight>`` in lower case; the stage part is cut so that all fits in 253."""
    tail = f".{ulid}.{freight[:7]}"
    return f"{stage[: _MAX_NAME - len(tail)].rstrip('.-')}{tail}".lower()


# --- Freight names --------------------------------------------------------------------------------------------------


def freight_name(
    origin: FreightOrigin,
    commits: Iterable[GitCommit] = (),
    images: Iterable[Image] = (),
    charts: Iterable[Chart] = (),
    artifacts: Iterable[ArtifactReference] = (),
) -> str:
    """The name of Freight: SHA-1 in hex of its origin and its sorted artifacts (Kargo's ``pkg/api/freight.go``)."""
    parts = [
        *(_join(normalize_git(c.repo_url), c.tag, c.id, c.subscription_name) for c in commits),
        *(_join(f"{i.repo_url}:{i.tag}@{i.digest}", i.subscription_name) for i in images),
        *(_join(_chart(c), c.version, c.subscription_name) for c in charts),
        *(f"{a.artifact_type}:{a.subscription_name}:{a.version}" for a in artifacts),
    ]
    return sha1(f"{origin}:{'|'.join(sorted(parts))}".encode(), usedforsecurity=False).hexdigest()


def _join(first: str, *rest: str) -> str:
    return ":".join((first, *(part for part in rest if part)))


def _chart(chart: Chart) -> str:
    """Go's path.Join of repository and name: it cleans, so ``https://x/`` + ``foo`` becomes ``https:/x/foo``."""
    parts = [part for part in (normalize_chart(chart.repo_url), chart.name) if part]
    if not parts:
        return ""
    cleaned = posixpath.normpath("/".join(parts))
    return re.sub(r"^//", "/", cleaned)


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()


_SCP = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^/:@]+):(?P<path>(?!//).*)")


def normalize_git(url: str) -> str:
    """A Git URL in the form URLs are compared in; what cannot be read as one is returned as it is, trimmed."""
    original = _printable(url)
    lower = original.lower()
    if lower.startswith(("http://", "https://", "ssh://")):
        try:
            parts = urlsplit(lower)
        except ValueError:
            return original
        if "?" in lower or not parts.netloc:
            return original
        netloc = parts.netloc if parts.scheme == "ssh" else parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, netloc, _strip_git(parts.path), "", ""))
    if (match := _SCP.fullmatch(lower)) and "?" not in lower and "://" not in lower:
        user = f"{match['user']}@" if match["user"] else ""
        return f"ssh://{user}{match['host']}/{_strip_git(match['path']).lstrip('/')}"
    return original


def _strip_git(path: str) -> str:
    return path.removesuffix("/").removesuffix(".git")


_IMAGE_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_IMAGE_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]+)?")
_DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


def normalize_image(url: str) -> str:
    """An image repository in the form they are compared in: no tag, no Docker Hub host, no ``library/``."""
    text = _printable(url)
    lower = text.lower()
    name = lower.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    tail, colon, tag = tail.partition(":")
    name = f"{head}{slash}{tail}"
    if colon and not _IMAGE_TAG.fullmatch(tag):
        return text
    host, _, path = name.partition("/")
    if path and ("." in host or ":" in host or host == "localhost"):
        if not _HOST.fullmatch(host) or not _IMAGE_PATH.fullmatch(path):
            return text
        return path.removeprefix("library/") if host in _DOCKER_HUB else f"{host}/{path}"
    if not _IMAGE_PATH.fullmatch(name):
        return text
    return name.removeprefix("library/")


def normalize_chart(url: str) -> str:
    """A chart repository in the form they are compared in; an https:// repository is only put into lower case."""
    return normalize_image(_printable(url).lower().removeprefix("oci://"))


# --- Who may, and who did -------------------------------------------------------------------------------------------


class AuthorizedStageError(ValueError):
    """An annotation ``kargo.akuity.io/authorized-stage`` that is wrong as a whole; it authorises nobody."""


def authorized_stages(value: str) -> frozenset[str]:
    """The ``<project>:<stage>`` entries of the annotation; raises AuthorizedStageError saying which entry is wrong."""
    entries = [entry.strip() for entry in value.split(",")]
    for entry in filter(None, entries):
        project, colon, stage = entry.partition(":")
        if not colon or not project or not stage or ":" in stage:
            raise AuthorizedStageError(f"entry {entry!r} is not of the form <project>:<stage>")
        if "*" in entry:
            raise AuthorizedStageError(f"entry {entry!r} has a wildcard, which is not supported")
    found = frozenset(filter(None, entries))
    if not found:
        raise AuthorizedStageError("it names no <project>:<stage>")
    return found


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked for a Promotion; ``user`` is None when only the controller can be named."""

    user: str | None

    @classmethod
    def of(cls, annotation: str | None) -> Actor:
        """Read the annotation ``kargo.akuity.io/create-actor`` (``email:a@b`` is the user ``a@b``)."""
        if not annotation or annotation == UNKNOWN_ACTOR:
            return cls(None)
        _, colon, user = annotation.partition(":")
        return cls(user if colon else annotation)

    @property
    def username(self) -> str:
        """The name to give for them in an Argo CD operation."""
        return self.user or CONTROLLER_USERNAME
