"""`kargo-py get`: rows for objects in any state, and what is printed of what changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given, strategies as st

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.cli.get import FORMS, Request, Table, check, documents, once, watch
from kargo_py.cli.objects import Session, check_namespace, subject
from kargo_py.cli.rows import (
    PROMOTION_COLUMNS,
    STAGE_COLUMNS,
    Surroundings,
    age,
    aliases,
    places,
    plain,
    promotion_row,
    shown,
    stage_row,
)
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver.client import client_of
from tests.in_process import api_server, create_namespaces

JsonObject = dict[str, Any]

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOWHERE = Surroundings({}, {})
WAITS = {"stepExecutionMetadata": [{}, {"status": "Running", "message": "waits\n for it"}]}
SHA1 = "0123456789abcdef0123456789abcdef01234567"


def at(**earlier: float) -> str:
    """The time that much before noon."""
    return (NOON - timedelta(**earlier)).strftime("%Y-%m-%dT%H:%M:%SZ")


def promotion(name: str = "dev.1", status: JsonObject | None = None, stage: str = "dev", **metadata: Any) -> JsonObject:
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": at(minutes=4), **metadata},
        "spec": {"stage": stage, "freight": "f1", "steps": [{"uses": "argocd-update"}]},
        **({"status": status} if status is not None else {}),
    }


def promotion_cells(raw: JsonObject, near: Surroundings = NOWHERE) -> dict[str, str]:
    return dict(zip((c.title for c in PROMOTION_COLUMNS), promotion_row(raw, near, NOON), strict=True))


def stage_cells(raw: JsonObject, near: Surroundings = NOWHERE) -> dict[str, str]:
    return dict(zip((c.title for c in STAGE_COLUMNS), stage_row(raw, near, NOON), strict=True))


class TestRows:
    """What the columns say."""

    @pytest.mark.parametrize(
        ("status", "phase", "since", "why"),
        [
            (None, "Pending", "4m", ""),
            ({"phase": "Pending"}, "Pending", "4m", ""),
            ({"phase": "Running", "startedAt": at(seconds=70)}, "Running", "70s", ""),
            ({"phase": "Running", "startedAt": at(hours=9), **WAITS}, "Running", "9h", "waits for it"),
            ({"phase": "Failed", "finishedAt": at(days=3), "message": "no"}, "Failed", "3d", "no"),
            ({"phase": "Succeeded"}, "Succeeded", "-", ""),
        ],
    )
    def test_promotion(self, status: JsonObject | None, phase: str, since: str, why: str) -> None:
        """Phase, since when it is in it, and the message that says why."""
        cells = promotion_cells(promotion(status=status))
        assert (cells["PHASE"], cells["SINCE"], cells["WHY"]) == (phase, since, why)
        assert (cells["NAME"], cells["STAGE"], cells["FREIGHT"]) == ("dev.1", "dev", "f1")

    def test_wide(self) -> None:
        """Step, shard, who created it, and its age."""
        labels, annotations = {"kargo.akuity.io/shard": "eu"}, {"kargo.akuity.io/create-actor": "email:a@b"}
        raw = promotion(status={"phase": "Running", "currentStep": 0}, labels=labels, annotations=annotations)
        cells = promotion_cells(raw)
        assert [cells[c.title] for c in PROMOTION_COLUMNS if c.wide] == ["1/1", "eu", "email:a@b", "4m"]

    def test_queue(self) -> None:
        """A Promotion that waits says at which place, by age and not by name; one to be aborted says that."""
        every = [
            promotion("a"),
            promotion("b", creationTimestamp=at(minutes=9)),
            promotion("c", {"phase": "Running"}),
            promotion("d", stage="prod"),
            promotion("e", annotations={ANNOTATION_ABORT: "terminate"}),
            promotion("f", deletionTimestamp=at()),
        ]
        near = Surroundings({}, places(every))
        whys = {raw["metadata"]["name"]: promotion_cells(raw, near)["WHY"] for raw in every}
        assert whys == {
            "a": "2 of 3 in the queue",
            "b": "1 of 3 in the queue",
            "c": "",
            "d": "1 of 1 in the queue",
            "e": "to be aborted",
            "f": "",
        }

    def test_freight(self) -> None:
        """Its alias, from the field or the label; else its name, cut if it is a hash."""
        known = aliases(
            [
                {"metadata": {"namespace": "shop", "name": "f1"}, "alias": "brave-bear"},
                {"metadata": {"namespace": "shop", "name": SHA1, "labels": {"kargo.akuity.io/alias": "tiny-tern"}}},
                {"metadata": {"namespace": "shop", "name": "f3"}},
            ]
        )
        raw = promotion()
        hashed = {**raw, "spec": {"freight": SHA1}}
        near = Surroundings(known, {})
        assert promotion_cells(raw, near)["FREIGHT"] == "brave-bear"
        assert promotion_cells(hashed, near)["FREIGHT"] == "tiny-tern"
        assert promotion_cells(hashed)["FREIGHT"] == SHA1[:7]
        assert promotion_cells({**raw, "spec": {}})["FREIGHT"] == "-"

    def test_stage(self) -> None:
        """What is there, how it is, whether it is ready since when and else why not, and what runs."""
        ready = {"type": "Ready", "status": "False", "message": "a pod is gone", "lastTransitionTime": at(minutes=3)}
        raw = {
            "metadata": {"name": "dev", "namespace": "shop"},
            "spec": {"shard": "eu"},
            "status": {
                "freightHistory": [{"items": {"Warehouse/a": {"name": "f1"}, "Warehouse/b": {"name": SHA1}}}],
                "health": {"status": "Unhealthy"},
                "conditions": [{"type": "Healthy"}, ready],
                "currentPromotion": {"name": "dev.2"},
                "lastPromotion": {"name": "dev.1"},
            },
        }
        near = Surroundings({("shop", "f1"): "brave-bear"}, {})
        assert list(stage_row(raw, near, NOON)) == [
            *("dev", "brave-bear,0123456", "Unhealthy", "False", "3m", "dev.2", "eu", "dev.1", "-", "a pod is gone")
        ]
        well = {**raw, "status": {"conditions": [{**ready, "status": "True"}]}}
        assert stage_cells(well)["WHY"] == ""
        assert set(stage_cells({"metadata": {"name": "x"}}).values()) == {"x", "-", ""}

    def test_nothing_moves_the_cursor(self) -> None:
        """What somebody wrote into an object cannot play with the terminal, nor break the line."""
        cells = promotion_cells(promotion(status={"phase": "Failed", "message": "\x1b[2Jred\r\n\tnext"}))
        assert cells["WHY"] == "[2Jred next"
        assert plain("a\x00b\u202ec") == "a b c"

    def test_width(self) -> None:
        """The reason is cut in the table, and whole when it is wide."""
        row = promotion_row(promotion(status={"phase": "Failed", "message": "x" * 500}), NOWHERE, NOON)
        narrow, broad = (shown(PROMOTION_COLUMNS, row, wide=wide) for wide in (False, True))
        assert narrow[-1] == "x" * 79 + "…"
        said = 'Argo CD Application "shop-dev" in namespace "argocd": waiting'
        row = promotion_row(promotion(status={"phase": "Failed", "message": said}), NOWHERE, NOON)
        assert [shown(PROMOTION_COLUMNS, row, wide=wide)[-1] for wide in (False, True)] == ["shop-dev: waiting", said]
        assert broad[-1] == "x" * 500
        assert len(broad) == len(PROMOTION_COLUMNS) > len(narrow)

    @pytest.mark.parametrize(
        ("time", "told"), [("", "-"), ("soon", "?"), (at(hours=1), "60m"), ("2026-11-30", "?"), (at(seconds=-9), "0s")]
    )
    def test_age(self, time: str, told: str) -> None:
        """What is no time is no reason to fail, and neither is a clock that is ahead."""
        assert age(time, NOON) == told

    OBJECTS = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        *("metadata", "spec", "status", "name", "namespace", "labels", "conditions", "type", "phase"),
                        *(
                            "freightHistory",
                            "items",
                            "message",
                            "stepExecutionMetadata",
                            "steps",
                            "currentStep",
                            "freight",
                        ),
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )

    @given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "alias"]), OBJECTS))
    def test_any_object(self, raw: JsonObject) -> None:
        """Whatever form an object has, it has its row."""
        near = Surroundings(aliases([raw]), places([raw]))
        for cells in (promotion_row(raw, near, NOON), stage_row(raw, near, NOON)):
            assert "\n" not in "".join(cells)


class TestWords:
    """What the command line may say."""

    @pytest.mark.parametrize(
        ("words", "resource", "name"),
        [
            (["promotions"], PROMOTIONS, ""),
            (["Promotion", "dev.1"], PROMOTIONS, "dev.1"),
            (["promotions.kargo.akuity.io/dev.1"], PROMOTIONS, "dev.1"),
            (["stage/dev"], STAGES, "dev"),
            (["stages", "dev"], STAGES, "dev"),
        ],
    )
    def test_subject(self, words: list[str], resource: Resource, name: str) -> None:
        """Kinds in both numbers, and names in both places, as kubectl takes them."""
        assert subject("get", words[0], "".join(words[1:])) == (resource, name)

    @pytest.mark.parametrize(
        ("words", "named", "told"),
        [
            (["pods"], False, "'pods' is no kind"),
            (["promotion/a", "b"], False, "'a' names an object already"),
            (["promotion/"], False, "which promotion?"),
            (["promotion"], True, "kargo-py why promotion NAME"),
            (["promotion", "../x"], False, "cannot be the name"),
            (["stage", "A"], False, "cannot be the name of a stage"),
            (["stage", "a" * 254], False, "cannot be the name of a stage"),
        ],
    )
    def test_wrong_subject(self, words: list[str], named: bool, told: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A usage error that says what is wrong."""
        with pytest.raises(typer.Exit) as caught:
            subject("why", words[0], "".join(words[1:]), named=named)
        assert caught.value.exit_code == 2
        assert told in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("request_", "told"),
        [
            (Request(PROMOTIONS, form="csv"), "--output 'csv': must be one of table, wide, json, yaml, name"),
            (Request(PROMOTIONS, phases=frozenset({"Done"})), "--phase 'Done': must be one of Pending, Running"),
            (Request(STAGES, stage="dev"), "--stage is for Promotions only"),
            (Request(STAGES, phases=frozenset({"Running"})), "--phase is for Promotions only"),
            (Request(PROMOTIONS, name="x", every=True), "in the place of -A"),
        ],
    )
    def test_wrong_options(self, request_: Request, told: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The same for options."""
        with pytest.raises(typer.Exit) as caught:
            check(request_)
        assert caught.value.exit_code == 2
        assert told in capsys.readouterr().err

    @pytest.mark.parametrize("namespace", ["Shop", "a_b", "-a", "a" * 64, "a/b"])
    def test_wrong_namespace(self, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The same for a name that no namespace can have."""
        with pytest.raises(typer.Exit):
            check_namespace(namespace)
        assert "--namespace" in capsys.readouterr().err

    def test_case(self) -> None:
        """Words are taken in any case."""
        checked = check(Request(PROMOTIONS, form="JSON", phases=frozenset({"running", "FAILED"})))
        assert checked.form == "json"
        assert sorted(checked.phases) == ["Failed", "Running"]


FREIGHT = {
    "apiVersion": FREIGHTS.api_version,
    "kind": "Freight",
    "metadata": {"name": "f1"},
    "origin": {"kind": "Warehouse", "name": "wh"},
    "images": [{"repoURL": "r.example.com/shop", "tag": "v1"}],
}


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    """A user of a server of his own, with a Project that has some Freight."""
    client = client_of(api_server(utc_now))
    await create_namespaces(client, "shop", "other")
    await create(client, FREIGHTS, {**FREIGHT, "alias": "brave-bear"})
    yield Session(client, "shop")
    await client.close()


async def create(client: Any, resource: Resource, obj: JsonObject, namespace: str = "shop") -> None:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in {"namespace", "creationTimestamp"}}
    await client.create(resource, namespace, encode({**obj, "metadata": metadata}), codec=JSON)


async def set_status(session: Session, name: str, status: JsonObject) -> None:
    key = Key("shop", name)
    await session.client.patch(PROMOTIONS, key, encode({"status": status}), codec=JSON, subresource="status")


class Printed:
    """What was printed, to be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.told: list[str] = []
        self._more = asyncio.Event()

    def out(self, line: str) -> None:
        self.lines.append(line)
        self._more.set()

    def tell(self, line: str) -> None:
        self.told.append(line)
        self._more.set()

    async def until(self, words: str) -> None:
        """Wait until something with these words was printed."""
        async with asyncio.timeout(30):
            while not any(words in line for line in [*self.lines, *self.told]):
                self._more.clear()
                await self._more.wait()


class TestOnce:
    """What is printed of what there is."""

    async def printed(self, session: Session, request: Request) -> tuple[list[str], list[str]]:
        printed = Printed()
        await once(request, session, printed.out, printed.tell)
        return printed.lines, printed.told

    async def test_table(self, session: Session) -> None:
        """A head and a row for each, filtered as asked for, in the namespace or in all."""
        for name, stage in (("dev.2", "dev"), ("dev.1", "dev"), ("prod.1", "prod")):
            await create(session.client, PROMOTIONS, promotion(name, stage=stage))
        await create(session.client, PROMOTIONS, promotion("dev.9"), "other")
        await set_status(session, "dev.1", {"phase": "Failed", "message": "it said no"})

        async def names(**options: Any) -> list[list[str]]:
            lines, told = await self.printed(session, Request(PROMOTIONS, **options))
            assert told == []
            return [line.split()[:2] for line in lines[1:]]

        lines, _ = await self.printed(session, Request(PROMOTIONS))
        assert lines[0].split() == ["NAME", "STAGE", "FREIGHT", "PHASE", "SINCE", "WHY"]
        assert [line.split()[:4] for line in lines[1:]] == [
            ["dev.1", "dev", "brave-bear", "Failed"],
            ["dev.2", "dev", "brave-bear", "Pending"],
            ["prod.1", "prod", "brave-bear", "Pending"],
        ]
        assert lines[1].endswith("it said no")
        assert len({line.index(word) for line, word in zip(lines, ["PHASE", "Failed", "Pending"], strict=False)}) == 1
        assert await names(stage="prod") == [["prod.1", "prod"]]
        assert await names(phases=frozenset({"Failed"})) == [["dev.1", "dev"]]
        assert await names(every=True) == [["other", "dev.9"], ["shop", "dev.1"], ["shop", "dev.2"], ["shop", "prod.1"]]
        assert await names(name="dev.2") == [["dev.2", "dev"]]

    async def test_a_single_one_has_its_place(self, session: Session) -> None:
        """Asked for alone, a Promotion that waits still says at which place it does."""
        for name in ("dev.1", "dev.2"):
            await create(session.client, PROMOTIONS, promotion(name))
        lines, _ = await self.printed(session, Request(PROMOTIONS, name="dev.2"))
        assert lines[1].endswith("2 of 2 in the queue")

    async def test_none(self, session: Session) -> None:
        """Nothing found is told beside the output, and is an empty list for programs."""
        assert await self.printed(session, Request(STAGES)) == ([], ['no stages found in "shop"'])
        assert await self.printed(session, Request(STAGES, every=True)) == ([], ["no stages found"])
        lines, told = await self.printed(session, Request(STAGES, form="json"))
        assert told == []
        assert json.loads("".join(lines))["items"] == []
        await create(session.client, PROMOTIONS, promotion("dev.1"))
        ended = Request(PROMOTIONS, name="dev.1", form="json", phases=frozenset({"Failed"}))
        lines, _ = await self.printed(session, ended)
        assert json.loads("".join(lines))["items"] == []

    async def test_absent(self, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
        """An object that is not there is an error that names it."""
        with pytest.raises(typer.Exit):
            await self.printed(session, Request(PROMOTIONS, name="nope"))
        assert 'Promotion "nope" does not exist in namespace "shop"' in capsys.readouterr().err

    async def test_documents(self, session: Session) -> None:
        """For programs: one object alone is itself, several are a List; names can be given to kubectl."""
        for name in ("dev.1", "dev.2"):
            await create(session.client, PROMOTIONS, promotion(name))
        [alone], _ = await self.printed(session, Request(PROMOTIONS, name="dev.1", form="json"))
        [several], _ = await self.printed(session, Request(PROMOTIONS, form="yaml"))
        names, _ = await self.printed(session, Request(PROMOTIONS, form="name"))
        assert json.loads(alone)["metadata"]["name"] == "dev.1"
        assert "managedFields" not in alone
        assert yaml.safe_load(several)["kind"] == "List"
        assert [item["metadata"]["name"] for item in yaml.safe_load(several)["items"]] == ["dev.1", "dev.2"]
        assert names == ["promotion.kargo.akuity.io/dev.1", "promotion.kargo.akuity.io/dev.2"]

    @pytest.mark.parametrize("error", [Forbidden(403, "Forbidden", "no"), NotFound(404, "NotFound", "no")])
    async def test_without_freight(self, session: Session, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        """Where Freight may not be read, its name stands in the place of its alias."""
        await create(session.client, PROMOTIONS, promotion())
        listing = RestClient.list

        async def refuse(client: RestClient, resource: Resource, *args: Any, **options: Any) -> Any:
            if resource == FREIGHTS:
                raise error
            return await listing(client, resource, *args, **options)

        monkeypatch.setattr(RestClient, "list", refuse)
        lines, _ = await self.printed(session, Request(PROMOTIONS))
        assert lines[1].split()[2] == "f1"


class TestWatch:
    """What is printed of what changes."""

    async def test_rows(self, session: Session) -> None:
        """The table first; then each row that looks different, once; also one that ends or goes."""
        printed = Printed()
        await create(session.client, PROMOTIONS, promotion("dev.1"))
        request = Request(PROMOTIONS, watch=True)
        task = asyncio.create_task(watch(request, session, printed.out, printed.tell))
        await printed.until("1 of 1 in the queue")
        await create(session.client, PROMOTIONS, promotion("dev.2"))
        await printed.until("2 of 2 in the queue")
        await set_status(session, "dev.1", {"phase": "Running"})
        await printed.until("Running")
        await set_status(session, "dev.1", {"lastHandledRefresh": "nothing that is shown"})
        await set_status(session, "dev.1", {"phase": "Failed", "message": "it said no"})
        await printed.until("it said no")
        await session.client.delete(PROMOTIONS, Key("shop", "dev.2"))
        await printed.until("it was deleted")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        rows = [(line.split()[0], *line.split()[3:4]) for line in printed.lines]
        assert rows[:2] == [("NAME", "PHASE"), ("dev.1", "Pending")]
        assert rows.count(("NAME", "PHASE")) == 1
        assert [row for row in rows if row[0] == "dev.1"] == [
            ("dev.1", "Pending"),  # 1 of 1
            ("dev.1", "Pending"),  # 1 of 2
            ("dev.1", "Running"),
            ("dev.1", "Failed"),
        ]
        assert rows[-1] == ("dev.2", "Pending")
        assert printed.told == []

    async def test_filter(self, session: Session) -> None:
        """A row that is none of those asked for any longer is shown a last time; others are not shown at all."""
        printed = Printed()
        request = Request(PROMOTIONS, watch=True, phases=frozenset({"Running"}))
        task = asyncio.create_task(watch(request, session, printed.out, printed.tell))
        await printed.until("no promotions found")
        for name in ("dev.1", "dev.2"):
            await create(session.client, PROMOTIONS, promotion(name))
        await set_status(session, "dev.1", {"phase": "Running"})
        await printed.until("Running")
        await set_status(session, "dev.1", {"phase": "Succeeded"})
        await printed.until("Succeeded")
        await set_status(session, "dev.2", {"phase": "Running"})
        await printed.until("dev.2")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert [line.split()[::3] for line in printed.lines[1:]] == [
            ["dev.1", "Running"],
            ["dev.1", "Succeeded"],
            ["dev.2", "Running"],
        ]

    async def test_aliases(self, session: Session) -> None:
        """An alias that somebody gives meanwhile is news of the rows with that Freight."""
        printed = Printed()
        await session.client.delete(FREIGHTS, Key("shop", "f1"))
        await create(session.client, PROMOTIONS, promotion("dev.1"))
        task = asyncio.create_task(watch(Request(PROMOTIONS, watch=True), session, printed.out, printed.tell))
        await printed.until("1 of 1")
        await create(session.client, FREIGHTS, {**FREIGHT, "alias": "tiny-tern"})
        await printed.until("tiny-tern")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [line.split()[2] for line in printed.lines] == ["FREIGHT", "f1", "tiny-tern"]

    @pytest.mark.parametrize("form", ["json", "yaml", "name"])
    async def test_documents(self, session: Session, form: str) -> None:
        """For programs each change is a document."""
        printed = Printed()
        await create(session.client, PROMOTIONS, promotion("dev.1"))
        request = Request(PROMOTIONS, name="dev.1", watch=True, form=form)
        task = asyncio.create_task(watch(request, session, printed.out, printed.tell))
        await printed.until("dev.1")
        await create(session.client, PROMOTIONS, promotion("dev.2"))
        await set_status(session, "dev.1", {"phase": "Running"})
        await printed.until("Running" if form != "name" else "dev.1")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert not any("dev.2" in line for line in printed.lines)
        if form != "name":
            assert [yaml.safe_load(line)["metadata"]["name"] for line in printed.lines] == ["dev.1", "dev.1"]

    async def test_absent(self, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
        """Watching what is not there ends at once."""
        printed = Printed()
        with pytest.raises(typer.Exit):
            await watch(Request(PROMOTIONS, name="nope", watch=True), session, printed.out, printed.tell)
        assert "does not exist" in capsys.readouterr().err


def test_columns_grow() -> None:
    """A longer name widens its column from then on; what stands already stays as it is."""
    table = Table(Request(PROMOTIONS))

    def line(name: str) -> Sequence[str]:
        return table.lines([(promotion(name), table.row(promotion(name), NOWHERE, NOON))])

    first, long, last = line("a"), line("a-much-longer-name"), line("b")
    assert first[0].index("STAGE") == first[1].index("dev") == 7
    assert long[0].index("dev") == last[0].index("dev") == len("a-much-longer-name") + 3
    assert table.lines([]) == []


def test_forms() -> None:
    """Each form is made somewhere."""
    made = {form: list(documents([promotion()], Request(PROMOTIONS, form=form), alone=True)) for form in FORMS[2:]}
    assert {form: len(pieces) for form, pieces in made.items()} == {"json": 1, "yaml": 1, "name": 1}
