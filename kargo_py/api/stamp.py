"""The stamp: the name of one attempt to start work in somebody else's controller.

A stamp is written with the start (into the operation's info and into an annotation that survives the operation), so
that afterwards, in whatever state the world is found, one can tell whether this very attempt was carried out. It names
the control plane too: two Kargos that share one Argo CD never take each other's work for their own.

Text form, version 1: ``v1/<instance>/<namespace>/<name>/<uid>/<step>/<attempt>``. ``%`` and ``/`` inside a part are
percent-encoded. At most 1,024 characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from kargo_py.messages import Shown, message

INSTANCE_MALFORMED = message(
    "instance id {instance!r}: must be 1 to 63 letters, digits, '.', '_' or '-', starting and ending with a letter "
    "or digit",
    do="Correct `--instance-id` or `KARGO_PY_INSTANCE_ID`.",
    shown=Shown.COMMAND_LINE,
)
STAMP_TOO_LONG = message(
    "stamp of {length} characters: at most {most} are allowed",
    do="The stamp is made of the names of Project, Promotion and step. Give the step a shorter alias (`as`) or the "
    "Promotion a shorter name.",
    shown=Shown.PROMOTION,
)
_NO_STAMP = (
    "Only kargo-py writes stamps: in a Promotion this is a fault of it, please report it. An Application's operation "
    "with such a stamp is taken for somebody else's and left alone."
)
STAMP_OF_OTHER_VERSION = message(
    "stamp {text!r}: version {version!r} is not one this program knows ({known})",
    do=_NO_STAMP,
    shown=Shown.PROMOTION,
)
STAMP_PARTS_MISSING = message(
    "stamp {text!r}: has {count} parts after the version, not 6",
    do=_NO_STAMP,
    shown=Shown.PROMOTION,
)
STAMP_PART_MALFORMED = message(
    "stamp {text!r}: a part is empty or wrongly encoded",
    do=_NO_STAMP,
    shown=Shown.PROMOTION,
)
STAMP_ATTEMPT_MALFORMED = message(
    "stamp {text!r}: attempt {attempt!r} is not a number from 1 to 999999",
    do=_NO_STAMP,
    shown=Shown.PROMOTION,
)
STAMP_NOT_NORMAL = message(
    "stamp {text!r}: is not in its normal form {normal!r}",
    do=_NO_STAMP,
    shown=Shown.PROMOTION,
)

STAMP_KEY = "kargo-py.io/stamp"
"""Under this name the stamp stands among an operation's info and among an object's annotations."""

STAGE_KEY = "kargo-py.io/stage"
"""Under this name an operation's info says which Stage it was started for: ``<project>:<stage>``."""

STATE_KEY = "kargo-py.io/operations"
"""Under this key of a Promotion's ``status.state`` stand the recorded intents; no step alias can be this."""

AWAITED_KEY = "kargo-py.io/awaited"
"""Under this key of ``status.state`` stands what a step waits for until somebody makes it; no alias can be this."""

TEXTS_KEY = "kargo-py.io/texts"
"""Under this key of ``status.state`` stand the texts of those values in outputs that were guessed from one: by alias,
then by JSON pointer."""

OUR_PREFIX = "kargo-py.io/"
"""What begins so in ``status.state`` is no output of a step, and no alias can begin so."""

MAX_LENGTH = 1024
_VERSION = "v1"
_INSTANCE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PART = re.compile(r"(?:[^%/]|%[0-9A-F]{2})+")
_ATTEMPT = re.compile(r"[1-9][0-9]{0,5}")


class StampError(ValueError):
    """A text that is no stamp of a version we know, or parts no stamp can be made of."""


def check_instance(instance: str) -> str:
    """Return *instance* if it can name a control plane; StampError says what is allowed otherwise."""
    if not _INSTANCE.fullmatch(instance):
        raise StampError(INSTANCE_MALFORMED(instance=instance))
    return instance


@dataclass(frozen=True, slots=True)
class Stamp:
    """One attempt of one step of one Promotion of one control plane; ``attempt`` counts from 1."""

    instance: str
    namespace: str
    name: str
    uid: str
    step: str
    attempt: int

    def __str__(self) -> str:
        parts = (self.namespace, self.name, self.uid, self.step)
        return "/".join((_VERSION, self.instance, *(quote(p, safe=_SAFE) for p in parts), str(self.attempt)))


# Only the separator and the escape character itself are encoded, so that a stamp stays readable.
_SAFE = "".join(chr(c) for c in range(32, 127) if chr(c) not in "%/")


def make_stamp(instance: str, namespace: str, name: str, uid: str, step: str, attempt: int) -> Stamp:
    """A checked stamp; raises StampError if a part is empty or the text would be too long."""
    stamp = Stamp(check_instance(instance), namespace, name, uid, step, attempt)
    parse_stamp(str(stamp))
    return stamp


def parse_stamp(text: str) -> Stamp:
    """Read a stamp strictly: what this returns prints as exactly *text*; anything else raises StampError."""
    if len(text) > MAX_LENGTH:
        raise StampError(STAMP_TOO_LONG(length=len(text), most=MAX_LENGTH))
    version, _, rest = text.partition("/")
    if version != _VERSION:
        raise StampError(STAMP_OF_OTHER_VERSION(text=text, version=version, known=_VERSION))
    parts = rest.split("/")
    if len(parts) != 6:
        raise StampError(STAMP_PARTS_MISSING(text=text, count=len(parts)))
    instance, *middle, attempt = parts
    check_instance(instance)
    if not all(_PART.fullmatch(p) for p in middle):
        raise StampError(STAMP_PART_MALFORMED(text=text))
    if not _ATTEMPT.fullmatch(attempt):
        raise StampError(STAMP_ATTEMPT_MALFORMED(text=text, attempt=attempt))
    namespace, name, uid, step = (unquote(part) for part in middle)
    stamp = Stamp(instance, namespace, name, uid, step, int(attempt))
    if str(stamp) != text:
        raise StampError(STAMP_NOT_NORMAL(text=text, normal=str(stamp)))
    return stamp
