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
from enum import StrEnum
from hashlib import sha1, sha256
from urllib.parse import quote, unquote_to_bytes

from kargo_py.api.freight import ArtifactReference, Chart, FreightOrigin, GitCommit, Image
from kargo_py.messages import Shown, message

NO_STAGE_AUTHORIZED = message(
    "it names no <project>:<stage>",
    do="The annotation is empty. Write the Project and the Stage into it, as in `guestbook:test`.",
    shown=Shown.PROMOTION,
)
ENTRY_MALFORMED = message(
    "entry {entry!r} is not of the form <project>:<stage>",
    do="Correct the entry. One wrong entry makes the whole annotation count for nothing.",
    shown=Shown.PROMOTION,
)
ENTRY_WITH_WILDCARD = message(
    "entry {entry!r} has a wildcard, which is not supported",
    do="Name each Stage by itself, separated by commas. One wrong entry makes the whole annotation count for nothing.",
    shown=Shown.PROMOTION,
)

FINALIZER = "kargo.akuity.io/finalizer"
"""On Stages and Projects; never on Promotions, Freight or Warehouses."""

# --- Annotations ----------------------------------------------------------------------------------------------------

ANNOTATION_CREATE_ACTOR = "kargo.akuity.io/create-actor"
ANNOTATION_REFRESH = "kargo.akuity.io/refresh"
ANNOTATION_ABORT = "kargo.akuity.io/abort"
ANNOTATION_REVERIFY = "kargo.akuity.io/reverify"
ANNOTATION_AUTO_PROMOTION_HOLD = "kargo.akuity.io/auto-promotion-hold"
ANNOTATION_AUTO_PROMOTION_RESUME = "kargo.akuity.io/auto-promotion-resume"
ANNOTATION_AUTHORIZED_STAGE = "kargo.akuity.io/authorized-stage"
"""On Argo CD Applications; :func:`authorized_stages` reads it."""
ANNOTATION_ARGOCD_CONTEXT = "kargo.akuity.io/argocd-context"
"""On Stages: JSON list of the {name, namespace} of the Applications behind them."""
ANNOTATION_STAGE = "kargo.akuity.io/stage"
ANNOTATION_PROMOTION = "kargo.akuity.io/promotion"
"""On AnalysisRuns."""
ANNOTATION_DESCRIPTION = "kargo.akuity.io/description"
ANNOTATION_ROLLBACK = "kargo.akuity.io/rollback"
ANNOTATION_KEEP_NAMESPACE = "kargo.akuity.io/keep-namespace"

INFO_PROMOTION = "kargo.akuity.io/promotion"
"""Name of the entry in an Argo CD operation's info that holds the Promotion's name; Kargo writes and reads it."""

# --- Labels ---------------------------------------------------------------------------------------------------------

LABEL_ALIAS = "kargo.akuity.io/alias"
LABEL_STAGE = "kargo.akuity.io/stage"
LABEL_SHARD = "kargo.akuity.io/shard"
LABEL_PROJECT = "kargo.akuity.io/project"
LABEL_FREIGHT_COLLECTION = "kargo.akuity.io/freight-collection"
LABEL_CREDENTIAL_TYPE = "kargo.akuity.io/cred-type"
CREDENTIAL_TYPE_GENERIC = "generic"
"""Value of that label: for whatever expressions want to read."""

# --- Events ---------------------------------------------------------------------------------------------------------

EVENT_PREFIX = "event.kargo.akuity.io/"
"""Prefix of the annotations that Kargo's Events carry."""


class EventAnnotation(StrEnum):
    """The annotations that Kargo's Events carry."""

    ACTOR = f"{EVENT_PREFIX}actor"
    PROJECT = f"{EVENT_PREFIX}project"
    PROMOTION_NAME = f"{EVENT_PREFIX}promotion-name"
    PROMOTION_CREATE_TIME = f"{EVENT_PREFIX}promotion-create-time"
    FREIGHT_ALIAS = f"{EVENT_PREFIX}freight-alias"
    FREIGHT_NAME = f"{EVENT_PREFIX}freight-name"
    FREIGHT_CREATE_TIME = f"{EVENT_PREFIX}freight-create-time"
    FREIGHT_WAREHOUSE_NAME = f"{EVENT_PREFIX}freight-warehouse-name"
    FREIGHT_COMMITS = f"{EVENT_PREFIX}freight-commits"
    FREIGHT_IMAGES = f"{EVENT_PREFIX}freight-images"
    FREIGHT_CHARTS = f"{EVENT_PREFIX}freight-charts"
    FREIGHT_ARTIFACTS = f"{EVENT_PREFIX}freight-artifacts"
    STAGE_NAME = f"{EVENT_PREFIX}stage-name"
    ANALYSIS_RUN_NAME = f"{EVENT_PREFIX}analysis-run-name"
    VERIFICATION_PENDING = f"{EVENT_PREFIX}verification-pending"
    VERIFICATION_START_TIME = f"{EVENT_PREFIX}verification-start-time"
    VERIFICATION_FINISH_TIME = f"{EVENT_PREFIX}verification-finish-time"
    APPLICATIONS = f"{EVENT_PREFIX}applications"
    ROLLBACK = f"{EVENT_PREFIX}rollback"


class EventReason(StrEnum):
    """The reasons of Kargo's Events on Promotions and Freight."""

    PROMOTION_CREATED = "PromotionCreated"
    PROMOTION_SUCCEEDED = "PromotionSucceeded"
    PROMOTION_FAILED = "PromotionFailed"
    PROMOTION_ERRORED = "PromotionErrored"
    PROMOTION_ABORTED = "PromotionAborted"
    FREIGHT_CREATED = "FreightCreated"
    FREIGHT_APPROVED = "FreightApproved"
    FREIGHT_VERIFICATION_SUCCEEDED = "FreightVerificationSucceeded"
    FREIGHT_VERIFICATION_FAILED = "FreightVerificationFailed"
    FREIGHT_VERIFICATION_ERRORED = "FreightVerificationErrored"
    FREIGHT_VERIFICATION_ABORTED = "FreightVerificationAborted"
    FREIGHT_VERIFICATION_INCONCLUSIVE = "FreightVerificationInconclusive"
    FREIGHT_VERIFICATION_UNKNOWN = "FreightVerificationUnknown"


# --- Label values ---------------------------------------------------------------------------------------------------

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
            value = max(fresh, self._last + 1)
            if value >> _ULID_BITS:
                raise OverflowError("a ULID cannot hold a time after the year 10889")
            self._last = value
        return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def promotion_name(stage: str, freight: str, ulid: str) -> str:
    """``<stage>.<ulid>.<first 7 of freight>`` in lower case; the stage part is cut so that all fits in 253.

    Raises ValueError if a part is empty.
    """
    # Freight named by hand may have a dot or dash as its seventh character, with which no name can end.
    short = freight[:7].rstrip(".-")
    tail = f".{ulid}.{short}"
    head = stage[: _MAX_NAME - len(tail)].rstrip(".-")
    if not (head and ulid and short):
        raise ValueError(f"a Promotion's name needs Stage, ULID and Freight: got {stage!r}, {ulid!r} and {freight!r}")
    return f"{head}{tail}".lower()


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
        *(_part(normalize_git(c.repo_url), *filter(None, [c.tag]), c.id, last=c.subscription_name) for c in commits),
        *(_part(f"{i.repo_url}:{i.tag}@{i.digest}", last=i.subscription_name) for i in images),
        *(_part(_chart(c), c.version, last=c.subscription_name) for c in charts),
        *(_part(a.artifact_type, a.subscription_name, a.version) for a in artifacts),
    ]
    return sha1(f"{origin}:{'|'.join(sorted(parts))}".encode(), usedforsecurity=False).hexdigest()


def _part(*names: str, last: str = "") -> str:
    """One artifact; the name of the subscription comes last, if there is one."""
    return ":".join((*names, last) if last else names)


def _chart(chart: Chart) -> str:
    """Go's path.Join of repository and name: it cleans, so ``https://x/`` + ``foo`` becomes ``https:/x/foo``."""
    parts = [part for part in (normalize_chart(chart.repo_url), chart.name) if part]
    if not parts:
        return ""
    cleaned = posixpath.normpath("/".join(parts))
    return re.sub(r"^//", "/", cleaned)


def _sanitized(text: str) -> str:
    return text.strip() if text.isprintable() else "".join(c for c in text if c.isprintable()).strip()


_GIT_URL = re.compile(
    r"(?P<scheme>https?|ssh)://(?:(?P<user>[\w.~!$&'()*+,;=:%@-]*)@)?"
    r"(?P<host>[^\s\[\]@/?#:%\\^`{|}]*|\[[0-9a-f:.]+\])(?P<port>:[0-9]*)?(?P<path>/[^?#]*)?(?P<fragment>#[^?]*)?"
)
_GIT_SCP = re.compile(r"(?P<host>(?:[\w-]+@)?[\w-]+(?:\.[\w-]+)*)(?::(?P<path>[^:?#]*))?", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-f]{2})")


def normalize_git(url: str) -> str:
    """A Git URL in the form URLs are compared in; what cannot be read as one is returned unchanged.

    User info is dropped (but for ssh://), so is a last ``/`` and then ``.git``; ``user@host:path`` becomes ssh://.
    """
    text = _sanitized(url.lower())
    if _BAD_ESCAPE.search(text):
        return url
    if text.startswith(("http://", "https://", "ssh://")):
        match = _GIT_URL.fullmatch(text)
        return _normal_url(match) if match else url
    match = _GIT_SCP.fullmatch(text)
    if match is None:
        return url
    path = _git_path(match["path"] or "")
    return f"ssh://{match['host']}/{path}" if path else f"ssh://{match['host']}"


def _normal_url(match: re.Match[str]) -> str:
    scheme, host, fragment = match["scheme"], match["host"], match["fragment"] or ""
    user = f"{match['user']}@" if match["user"] is not None and scheme == "ssh" else ""
    escaped = _escaped(host, f"{_GO_PATH}!'()*[]<>\"")
    return f"{scheme}://{user}{escaped}{match['port'] or ''}{_git_path(match['path'] or '')}{fragment}"


_GO_PATH = "$&+,/:;=@~"
"""What Go's net/url leaves as it is in a path, beside letters, digits and ``-._``."""
_GO_VALID = re.compile(r"[\w.~!$&'()*+,;=:@/\[\]%-]*", re.ASCII)


def _git_path(path: str) -> str:
    """*path* without its last ``/`` and ``.git``, escaped as Go's ``net/url`` writes a path that was edited."""
    plain = unquote_to_bytes(path)
    trimmed = plain.removesuffix(b"/").removesuffix(b".git")
    if trimmed == plain and _GO_VALID.fullmatch(path):
        return path
    return _escaped(trimmed, _GO_PATH)


def _escaped(text: str | bytes, safe: str) -> str:
    return quote(text, safe=safe)


_IMAGE_NAME = re.compile(r"[a-z0-9_./-]{1,255}")
_IMAGE_TAG = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE_HOST = re.compile(r"(?:[a-z0-9._~!$&'()*+,;=<>\"\x80-\U0010ffff-]*|\[[0-9a-f:.]+\])(?::[0-9]*)?")
_DOCKER_HUB = frozenset({"", "docker.io", "index.docker.io", "registry-1.docker.io"})


def normalize_image(url: str) -> str:
    """An image repository in the form they are compared in: no tag, no Docker Hub host, no ``library/``.

    What cannot be read as an image reference is returned unchanged.
    """
    name, at, digest = _sanitized(url.lower()).partition("@")
    if name.startswith(("http://", "https://")):
        return url
    if at and not _IMAGE_DIGEST.fullmatch(digest):
        return url
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:  # else it is the port of a registry
        if not _IMAGE_TAG.fullmatch(tag):
            return url
        name = head
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "", name
    if not _IMAGE_NAME.fullmatch(path) or not _IMAGE_HOST.fullmatch(host):
        return url
    return path.removeprefix("library/") if host in _DOCKER_HUB else f"{host}/{path}"


def normalize_chart(url: str) -> str:
    """A chart repository in the form they are compared in; an https:// repository is only put into lower case."""
    return normalize_image(_sanitized(url.lower()).removeprefix("oci://"))


# --- Who may, and who did -------------------------------------------------------------------------------------------

UNKNOWN_ACTOR = "unknown actor"
CONTROLLER_USERNAME = "kargo-controller"


class AuthorizedStageError(ValueError):
    """An annotation ``kargo.akuity.io/authorized-stage`` that is wrong as a whole; it authorises nobody."""


def authorized_stages(value: str) -> frozenset[str]:
    """The ``<project>:<stage>`` entries of the annotation; raises AuthorizedStageError saying which entry is wrong."""
    found = frozenset(_authorized_stage(entry) for entry in map(str.strip, value.split(",")) if entry)
    if not found:
        raise AuthorizedStageError(NO_STAGE_AUTHORIZED())
    return found


def _authorized_stage(entry: str) -> str:
    project, _, stage = map(str.strip, entry.partition(":"))
    if not project or not stage:
        raise AuthorizedStageError(ENTRY_MALFORMED(entry=entry))
    if "*" in entry:
        raise AuthorizedStageError(ENTRY_WITH_WILDCARD(entry=entry))
    return f"{project}:{stage}"


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
        return cls((user if colon else annotation) or None)

    @property
    def username(self) -> str:
        """The name to give for them in an Argo CD operation."""
        return self.user or CONTROLLER_USERNAME
