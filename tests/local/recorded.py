"""Recordings of the real Argo CD: reading a trace, writing one, and comparing the two.

A trace has one row for each stored version of an Application. What is compared of a row are its columns but time,
number of resources, generation, reconciledAt and conditions.

How rows are merged, and nothing else:

1. Rows in a row that are equal in the compared columns count once. (A refresh that only moves reconciledAt, or a write
   of something that is no column, makes such a row.)
2. While ``.operation`` is set, the verdict (sync, health, compared revision) and the operation (all other columns) are
   written by two workers, whose order varied between recordings of the same act. So the sequence of verdicts and the
   sequence of operations are compared each by itself. Rows without ``.operation`` are also compared as wholes.
3. Of an error that quotes git, what git itself wrote is left out: two processes wrote to one stream.
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
    r" *(?P<seconds>[\d.]+)s (?P<op>op|-) +(?P<phase>\S+) +(?P<fin>fin)? *r=(?P<retries>\S+) sync=(?P<sync>\S*) "
    r"health=(?P<health>\S*) cmpRev=(?P<compared>.*?) syncRev=(?P<synced>.*?) res=\d+ hist=(?P<history>\d+) "
    r"gen=\d+ rec=(?P<reconciled>\S*) .*?\| ?(?P<message>.*)",
    re.DOTALL,
)


class Verdict(NamedTuple):
    """What the refresh worker writes."""

    sync: str
    health: str
    compared: str


class Operation(NamedTuple):
    """What the operation worker and the requester write."""

    op: str
    phase: str
    fin: str
    retries: str
    synced: str
    history: int
    message: str


@dataclass(frozen=True, slots=True)
class Row:
    """One stored version."""

    operation: Operation
    verdict: Verdict


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
    rows = [
        Row(
            Operation(
                m["op"], m["phase"], m["fin"] or "", m["retries"], m["synced"], int(m["history"]), _told(m["message"])
            ),
            Verdict(m["sync"], m["health"], m["compared"]),
        )
        for m in found
    ]
    return Trace(rows, found[0]["reconciled"])


def row(app: JsonObject) -> Row:
    """The row of a version."""
    status = app.get("status") or {}
    state = status.get("operationState") or {}
    sync = status.get("sync") or {}
    result = state.get("syncResult") or {}
    return Row(
        Operation(
            "op" if "operation" in app else "-",
            state.get("phase", "None"),
            "fin" if "finishedAt" in state else "",
            str(state.get("retryCount")),
            str(result.get("revision"))[:7],
            len(status.get("history") or ()),
            _told(state.get("message", "")),
        ),
        Verdict(
            str(sync.get("status")),
            str((status.get("health") or {}).get("status")),
            str(sync.get("revisions") or sync.get("revision"))[:7],
        ),
    )


def _told(message: str) -> str:
    return re.sub(r"(failed exit status 128): .*", r"\1", message, flags=re.DOTALL)


def merged(rows: list[Row]) -> dict[str, list[Any]]:
    """What is compared of a sequence of rows; see the head of this module."""
    return {
        "operations": [value for value, _ in groupby(row.operation for row in rows)],
        "verdicts": [value for value, _ in groupby(row.verdict for row in rows)],
        "at rest": [value for value, _ in groupby(row for row in rows if row.operation.op == "-")],
    }
