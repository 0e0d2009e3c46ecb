"""Every text that a user can meet is declared, so that the reference page can say of each what to do about it.

    NOT_PICKED_UP = message(
        "{app}: Argo CD has not picked up the sync yet",
        do="After 10 seconds Argo CD is asked to look at the Application.",
        shown=Shown.PROMOTION,
    )

``NOT_PICKED_UP(app=app)`` is the text. A declaration stands at the top of the module that uses it; ``make messages``
writes all of them into ``docs/reference/messages.md``. The lowest layer: this module imports nothing of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from string import Formatter


class Shown(Flag):
    """Where a user meets a text; one that is met in several places has several."""

    COMMAND_LINE = auto()
    """On standard error, when the program cannot begin."""
    REFUSAL = auto()
    """What the API server answers to an object that breaks a rule of its CRD."""
    PROMOTION = auto()
    """``status.message`` of a Promotion, and the messages of its steps and operations."""
    STAGE = auto()
    """The issues of a Stage's health, and its conditions."""
    EVENT = auto()
    """The reason or the message of a Kubernetes Event."""
    LOG = auto()
    """A warning or an error in the log: the event, or what stands in its field ``error`` or ``why``."""
    PROBE = auto()
    """What ``/healthz`` and ``/readyz`` answer of a part that is not well."""
    ANSWER = auto()
    """What the commands ``abort`` and ``why`` answer, on standard output."""
    LINT = auto()
    """What the commands ``lint`` and ``render`` say of files."""


@dataclass(frozen=True, slots=True)
class Message:
    """A declared text; call it with the fields of its template. ``do`` is Markdown."""

    template: str
    do: str
    shown: Shown
    fields: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        names = [name for _, name, _, _ in Formatter().parse(self.template) if name is not None]
        if not all(name.isidentifier() for name in names):
            raise ValueError(f"{self.template!r}: each field needs a plain name")
        object.__setattr__(self, "fields", frozenset(names))

    def __call__(self, /, **fields: object) -> str:
        """The text. Raises TypeError unless *fields* are exactly those of the template."""
        if fields.keys() != self.fields:
            raise TypeError(f"{self.template!r} takes {sorted(self.fields)}, not {sorted(fields)}")
        return self.template.format(**fields)


_declared: dict[str, list[Message]] = {}


def message(template: str, *, do: str, shown: Shown) -> Message:
    """Declare a text of the calling module: *do* is what happens next by itself, or what the reader has to change."""
    made = Message(template, do, shown)
    _declared.setdefault(sys._getframe(1).f_globals["__name__"], []).append(made)  # noqa: SLF001 - as namedtuple does
    return made


def declared() -> Mapping[str, Sequence[Message]]:
    """The declarations of the modules imported so far, by module, in their order."""
    return {module: tuple(messages) for module, messages in _declared.items()}
