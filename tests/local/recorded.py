"""Recordings of the real Argo CD: reading a trace, writing one, and comparing the two.

A trace has one row for each stored version of an Application. What is compared of a row are its columns but time,
number of resources, generation, reconciledAt and conditions.

Two things are evened out, and nothing else:

1. Rows in a row that are equal in the compared columns count once. (A refresh that only moves reconciledAt, or a write
   of something that is no column, makes such a row.)
2. Of an error that quotes git, what git itself wrote is left out: two processes wrote to one stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

JsonObject = dict[str, Any]

TRACES = Path(__file__).with_name("traces")

_LINE = re.compile(
    r" *[\d.]+s (?P<op>op|-) +(?P<phase>\S+) +(?P<fin>fin)? *r=(?P<retries>\S+) sync=(?P<sync>\S*) "
    r"health=(?P<health>\S*) cmpRev=(?P<compared>.*?) syncRev=(?P<synced>.*?) res=\d+ hist=(?P<history>\d+) "
    r"gen=\d+ rec=(?P<reconciled>\S*) .*?\| ?(?P<message>.*)",
    re.DOTALL,
)


class Row(NamedTuple):
    """One stored version; what is not there is "None", as in the traces."""

    op: str
    phase: str
    fin: str
    retries: str
    sync: str
    health: str
    compared: str
    synced: str
    history: int
    message: str


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded of one act; ``reconciled`` is the time of day in its first row, "" without one."""

    rows: list[Row]
    reconciled: str


def read(file: str) -> Trace:
    """Read a trace."""
    lines: list[str] = []
    for line in (TRACES / file).read_text().splitlines():
        if _LINE.match(line):
            lines.append(line)
        else:
            lines[-1] += "\n" + line
    found = [match for line in lines if (match := _LINE.fullmatch(line))]
    if len(found) != len(lines):
        raise ValueError(f"{file}: a line is no row")
    rows = [Row(**_columns(match)) for match in found]
    return Trace(rows, found[0]["reconciled"])


def _columns(match: re.Match[str]) -> JsonObject:
    columns = match.groupdict("") | {"history": int(match["history"]), "message": _told(match["message"])}
    return {name: columns[name] for name in Row._fields}


def row(app: JsonObject) -> Row:
    """The row of a version."""
    status = app.get("status") or {}
    state = status.get("operationState") or {}
    sync = status.get("sync") or {}
    result = state.get("syncResult") or {}
    return Row(
        op="op" if "operation" in app else "-",
        phase=state.get("phase", "None"),
        fin="fin" if "finishedAt" in state else "",
        retries=str(state.get("retryCount")),
        sync=str(sync.get("status")),
        health=str((status.get("health") or {}).get("status")),
        compared=str(sync.get("revisions") or sync.get("revision"))[:7],
        synced=str(result.get("revision"))[:7],
        history=len(status.get("history") or ()),
        message=_told(state.get("message", "")),
    )


def _told(message: str) -> str:
    return re.sub(r"(failed exit status 128): .*", r"\1", message, flags=re.DOTALL)


def merged(rows: list[Row]) -> list[Row]:
    """The rows with those counted once that are equal to the one before."""
    return [row for row, _ in groupby(rows)]
