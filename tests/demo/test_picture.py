"""What the demo shows of the cluster."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from kargo_py.demo.acts import Scene
from kargo_py.demo.picture import ApplicationRow, Picture, PromotionRow, StageRow, changes, picture
from kargo_py.demo.screens import LiveScreen, PlainScreen, render

JsonObject = dict[str, Any]

ORDER = ("dev", "prod")


def named(name: str, created: str = "2026-11-30T12:00:00Z", **parts: Any) -> JsonObject:
    return {"metadata": {"name": name, "creationTimestamp": created}, **parts}


def test_picture() -> None:
    """Rows are in the order of the pipeline, Promotions in that of their creation; what is absent is empty."""
    waiting = {"phase": "Running", "stepExecutionMetadata": [{"message": "waits for a hook"}]}
    ended = {"phase": "Failed", "message": "sync failed", "stepExecutionMetadata": [{"message": "older"}]}
    seen = picture(
        [named("prod"), named("dev", status={"freightSummary": "f1", "health": {"status": "Healthy"}})],
        [
            named("prod.1", "2026-11-30T12:00:02Z", spec={"freight": "f1"}, status=waiting),
            named("dev.2", "2026-11-30T12:00:01Z", spec={"freight": "f1"}),
            named("dev.1", "2026-11-30T12:00:01Z", spec={"freight": "f0"}, status=ended),
        ],
        [named("f1", status={"verifiedIn": {"dev": {}, "prod": None}}), named("f0")],
        [named("shop-prod"), named("shop-dev", status={"operationState": {"phase": "Running", "message": "m"}})],
        ORDER,
    )

    assert seen == Picture(
        [StageRow("dev", "f1", "Healthy", ""), StageRow("prod", "", "", "")],
        [
            PromotionRow("dev.1", "f0", "Failed", "sync failed"),
            PromotionRow("dev.2", "f1", "", ""),
            PromotionRow("prod.1", "f1", "Running", "waits for a hook"),
        ],
        [ApplicationRow("shop-dev", "", "", "Running", "m"), ApplicationRow("shop-prod", "", "", "", "")],
    )


def test_what_a_spectator_makes() -> None:
    """With --keep anybody may create more: it is shown after what is in the story."""
    seen = picture([named("qa"), named("prod")], [], [], [named("blog"), named("api-qa"), named("shop-dev")], ORDER)

    assert [row.name for row in seen.stages] == ["prod", "qa"]
    assert [row.name for row in seen.applications] == ["shop-dev", "api-qa", "blog"]


def test_verified() -> None:
    """A Stage shows the Freight that was verified in it."""
    seen = picture([named("dev")], [], [named("f1", status={"verifiedIn": {"dev": {"verifiedAt": "t"}}})], [], ORDER)

    assert [row.verified for row in seen.stages] == ["verified f1"]


def test_changes() -> None:
    """A line for what is new or different, none for what stayed, none for a row without anything to say."""
    old = Picture([StageRow("dev", "", "", "")], [PromotionRow("dev.1", "f1", "Running", "")])
    new = Picture(
        [StageRow("dev", "f1", "Healthy", "")],
        [PromotionRow("dev.1", "f1", "Running", ""), PromotionRow("dev", "f1", "Pending", "")],
        [ApplicationRow("shop-dev", "", "", "", "")],
    )

    assert list(changes(old, new)) == ["promotion dev: f1, Pending", "stage dev: f1, Healthy"]
    assert list(changes(new, new)) == []


PICTURE = Picture(
    [StageRow("dev", "f1", "Healthy", "")],
    [PromotionRow("dev.1", "f1", "Failed", f"sync failed: {'because ' * 50}")],
    [ApplicationRow("shop-dev", "Synced", "Healthy", "Failed", "[red]no markup[/red]")],
)


def test_tables_fit() -> None:
    """On a terminal of 80 columns and 24 lines every row is one line, and nothing in a message is taken for markup."""
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    console.print(render(PICTURE))
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert len(text.splitlines()) == 7
    assert max(map(len, text.splitlines())) <= 80
    assert "[red]no markup[/red]" in text
    assert "Failed" in text


def test_plain_screen() -> None:
    """Line by line: the scene, the command, its answer, and what changed, cut where it is long."""
    out = StringIO()
    with PlainScreen(out) as screen:
        screen.opening("https://127.0.0.1:1", 0.5)
        screen.scene(1, Scene("A Project", "It has a Stage."))
        screen.command("kubectl get stages")
        screen.answer("NAME\ndev")
        screen.aside("a sync will hang")
        screen.show(PICTURE)
        screen.show(PICTURE)
        screen.closing(2.0, ["kubectl get pods"], keep=False)
    lines = out.getvalue().splitlines()

    assert "\x1b" not in out.getvalue()
    assert "1. A Project" in lines
    assert lines[lines.index("$ kubectl get stages") :][:3] == ["$ kubectl get stages", "NAME", "dev"]
    (told,) = [line for line in lines if "promotion dev.1" in line]
    assert told.startswith("   | promotion dev.1: f1, Failed, sync failed: because")
    assert told.endswith(" …")
    assert len(told) <= 160
    assert lines[-1] == "  kubectl get pods"


def test_live_screen() -> None:
    """On a terminal the tables are drawn below the commands, and stay at the end."""
    console = Console(file=StringIO(), width=100, height=30, force_terminal=True, color_system=None, highlight=False)
    with LiveScreen(console) as screen:
        screen.scene(1, Scene("A Project", "It has a Stage."))
        screen.command("kubectl get stages")
        screen.answer("[bold]NAME")
        screen.show(PICTURE)
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert "$ kubectl get stages" in text
    assert "[bold]NAME" in text
    assert text.rindex("PROMOTION") > text.rindex("$ kubectl get stages")
