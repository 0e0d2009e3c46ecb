"""How list and watch fare, and what follows."""

from __future__ import annotations

import pytest

from kargo_py.kube.errors import BadRequest, ConnectionLost, Gone, KubeError, Unreachable
from kargo_py.kube.health import Activity, Health

LOST, REFUSED = ConnectionLost("reset"), Unreachable("refused")
BAD, OLD = BadRequest(400, "BadRequest", "no"), Gone(410, "Expired", "too old")


def watch(error: KubeError) -> tuple[KubeError, Activity]:
    return (error, "watch")


def list_(error: KubeError) -> tuple[KubeError, Activity]:
    return (error, "list")


Step = str | float | tuple[KubeError, Activity]

# What happens in turn; then the error, the failures in a row, whether to ask how far the server is, and what the last
# step answered. A number: a watch, asked for 50 s, ends in order after so many seconds. "broke": after 2 s, having
# shown something; "broke at once": after none.
TABLE: list[tuple[str, list[Step], KubeError | None, int, bool, bool | None]] = [
    ("a list that fails", [list_(LOST)], LOST, 1, False, True),
    ("it fails again", [list_(LOST), list_(LOST)], LOST, 2, False, False),
    ("it fails in another way", [list_(LOST), list_(REFUSED)], REFUSED, 2, False, True),
    ("it works again", [list_(LOST), "listed"], None, 1, False, True),
    ("it works", ["listed"], None, 0, False, False),
    ("a watch that is cut", [watch(LOST)], LOST, 1, True, True),
    ("the server knows our version", [watch(LOST), "checked"], LOST, 1, False, False),
    ("a server that was away is back", [watch(REFUSED), "checked"], None, 1, False, True),
    ("the check fails too", [watch(LOST), watch(BAD)], BAD, 2, True, True),
    ("a list after a watch that was cut", [watch(LOST), "listed"], None, 1, False, True),
    ("a list after a watch that was refused", [watch(BAD), "listed"], BAD, 1, False, False),
    ("a watch that shows something", [watch(BAD), "shown"], None, 1, False, True),
    ("a watch that breaks at once", [watch(LOST), "shown", "broke at once", watch(LOST)], LOST, 2, True, True),
    ("a watch that breaks later", [watch(LOST), "shown", "broke", watch(LOST)], LOST, 1, True, True),
    ("a watch that ends at once", [watch(LOST), 0.9], LOST, 1, True, False),
    ("a watch that ends early", [watch(LOST), 5.0], None, 0, True, True),
    ("a watch that ends in its time", [watch(LOST), 49.5], None, 0, False, True),
    ("a version that is too old", ["expired"], None, 0, False, True),
    ("again and again", ["expired", "listed", "expired"], None, 0, False, False),
    ("a watch that showed something between", ["expired", "shown", "broke at once", "expired"], None, 0, False, False),
    ("a watch that worked between", ["expired", "shown", "broke", "expired"], None, 0, False, True),
    ("a watch that ended in order between", ["expired", 50.0, "expired"], None, 0, False, True),
    ("too old as a failure", ["expired", watch(OLD), "listed"], OLD, 1, False, False),
]


@pytest.mark.parametrize(
    ("steps", "error", "failures", "doubtful", "answer"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_health(steps: list[Step], error: KubeError | None, failures: int, doubtful: bool, answer: bool | None) -> None:
    """What has happened decides what is told, how long to wait, and what to ask next."""
    health = Health()
    said: bool | None = None
    for step in steps:
        match step:
            case float():
                said = health.ended(step, 50)
            case "broke":
                health.broke(2.0)
            case "broke at once":
                health.broke(0.0)
            case str():
                said = getattr(health, step)()
            case _:
                said = health.failed(*step)

    assert (health.error, health.failures, health.doubtful, said) == (error, failures, doubtful, answer)
