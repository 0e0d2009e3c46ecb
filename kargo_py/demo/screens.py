"""Where the story is shown: line by line, or on a terminal with the tables of the cluster always in sight."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from io import TextIOWrapper
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kargo_py.demo.acts import Scene
from kargo_py.demo.picture import Picture, Row, changes

_COLOURS = {
    "Succeeded": "green",
    "Healthy": "green",
    "Synced": "green",
    "Failed": "red",
    "Errored": "red",
    "Error": "red",
    "Unhealthy": "red",
    "Degraded": "red",
    "Aborted": "yellow",
    "Running": "cyan",
    "Terminating": "yellow",
    "Progressing": "cyan",
    "OutOfSync": "yellow",
}
_WIDTH = 100
_NEWS_WIDTH = 160
_WIDTHS = (13, 13, 11, 11, 0)
"""Of the columns, so that they stand still and under each other; the last one has the rest."""


class _Text:
    """What both say in words."""

    def line(self, text: str) -> None:
        """A line by itself."""
        raise NotImplementedError

    def opening(self, url: str, seconds: float) -> None:
        """Before the first scene."""
        told = (
            f"A Kubernetes API server at {url}, a simulated Argo CD and the controllers of kargo-py run in this "
            f"process; started in {seconds:.1f} s. Each command is what a user would type, and what it does is done "
            "over HTTP, as kubectl does it."
        )
        self.line(f"{textwrap.fill(told, _WIDTH)}\n")

    def closing(self, seconds: float, commands: Sequence[str], *, keep: bool) -> None:
        """After the last scene: how to look around, from the first line on that another terminal needs."""
        self.line(f"\nAll went as told, in {seconds:.1f} s.")
        if keep:
            self.line("It goes on running until Ctrl-C. Look around in another terminal:")
        else:
            self.line("With --keep (make demo DEMO_ARGS=--keep) it goes on running, for you to look around:")
        for command in commands:
            self.line(f"  {command}")


class PlainScreen(_Text):
    """Lines of text, for files, pipes and logs."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._seen = Picture()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def scene(self, number: int, scene: Scene) -> None:
        self.line(f"\n{number}. {scene.title}")
        self.line(textwrap.fill(scene.told, _WIDTH, initial_indent="   ", subsequent_indent="   ") + "\n")

    def command(self, command: str) -> None:
        self.line(f"$ {command}")

    def answer(self, text: str) -> None:
        for line in text.splitlines():
            self.line(line)

    def aside(self, text: str) -> None:
        self.line(f"   (the simulated Argo CD is told: {text})")

    def show(self, picture: Picture) -> None:
        for change in changes(self._seen, picture):
            self.line(_cut(f"   | {_short(change)}"))
        self._seen = picture


class LiveScreen(_Text):
    """The commands scroll by, the tables stay below them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=12, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, text: str) -> None:
        self._console.print(text, markup=False)

    def scene(self, number: int, scene: Scene) -> None:
        self._console.print(Text(f"\n{number}. {scene.title}", style="bold"))
        self._console.print(Text(textwrap.fill(scene.told, min(_WIDTH, self._console.width)) + "\n", style="italic"))

    def command(self, command: str) -> None:
        self._console.print(Text.assemble(("$ ", "dim"), (command, "bold cyan")))

    def answer(self, text: str) -> None:
        self._console.print(Text(text))

    def aside(self, text: str) -> None:
        self._console.print(Text(f"(the simulated Argo CD is told: {text})", style="dim"))

    def show(self, picture: Picture) -> None:
        self._live.update(render(picture))


def _short(text: str) -> str:
    """Without what the row itself says: in a table there is room for the end of a message only if it comes first."""
    return re.sub(r'(step "\w+": )?Argo CD Application "([^"]+)" in namespace "[^"]+"', r"\2", text)


def _cut(text: str) -> str:
    return text if len(text) <= _NEWS_WIDTH else f"{text[: _NEWS_WIDTH - 2].rstrip()} …"


def render(picture: Picture) -> Group:
    """The tables."""
    return Group(
        Rule(style="dim"),
        _table(("STAGE", "FREIGHT", "HEALTH", "VERIFIED"), picture.stages),
        _table(("PROMOTION", "FREIGHT", "PHASE", "MESSAGE"), picture.promotions),
        _table(("APPLICATION", "SYNC", "HEALTH", "OPERATION", "MESSAGE"), picture.applications),
    )


def _table(head: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    for name, width in zip(head, _WIDTHS, strict=False):
        last = name == head[-1]
        table.add_column(
            name, no_wrap=True, overflow="ellipsis", ratio=1 if last else None, width=None if last else width
        )
    for row in rows:
        cells = [_short(str(getattr(row, name))) for name in row.__slots__]
        table.add_row(*[Text(cell, style=_COLOURS.get(cell, "")) for cell in cells])
    return table


def screen() -> PlainScreen | LiveScreen:
    """The one that suits standard output; what that cannot encode is shown as a question mark."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen()
