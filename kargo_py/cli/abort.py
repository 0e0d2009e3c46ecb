"""``kargo-py abort promotion``: asks for the end of a Promotion, in the form that Kargo's own API server writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.names import UNKNOWN_ACTOR
from kargo_py.api.promotion import PromotionPhase, phase_of
from kargo_py.api.types import JsonObject
from kargo_py.cli.following import News, following
from kargo_py.cli.main import fail
from kargo_py.cli.objects import Session, Where, connected, read, run
from kargo_py.cli.rows import at, identity, text
from kargo_py.controllers.world import PROMOTIONS, drop_managed_fields
from kargo_py.kube.cache import Cache
from kargo_py.kube.clock import in_short
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import ApiError, Conflict, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.writes import guarded_patch
from kargo_py.messages import Shown, message

ABORT_ASKED = message(
    'Promotion "{name}": its abort is asked for, by {actor}',
    do="A controller that runs ends what the Promotion has under way, waits for that, and makes it `Aborted`.",
    shown=Shown.ANSWER,
)
FORCE_ASKED = message(
    'Promotion "{name}": its abort by force is asked for, by {actor}',
    do="A controller that runs makes it `Aborted` at once, and what it has under way may be left running.",
    shown=Shown.ANSWER,
)
ABORTED_BEFORE = message(
    'Promotion "{name}" is Aborted already',
    do="Nothing was changed.",
    shown=Shown.ANSWER,
)
BEING_ABORTED = message(
    'Promotion "{name}" is being aborted already, as {actor} asked',
    do="Nothing was changed. With `--force` it does not wait for what it has under way.",
    shown=Shown.ANSWER,
)
IS_ABORTED = message(
    'Promotion "{name}" is Aborted{why}',
    do="What follows says what became of what it had under way. Create a new Promotion to promote again.",
    shown=Shown.ANSWER,
)
STILL = message(
    'Promotion "{name}" is {phase}{why}',
    do="With `--wait`: what it waits for, until it is `Aborted`.",
    shown=Shown.ANSWER,
)
ENDED_OTHERWISE = message(
    'Promotion "{name}" ended as {phase}, so there is nothing to abort',
    do="It was over before the abort was seen. Promote other Freight if what it brought should not stay.",
    shown=Shown.COMMAND_LINE,
)
DELETED_MEANWHILE = message(
    'Promotion "{name}" was deleted before it was Aborted',
    do="A controller that runs ends what it has left, about half a minute later. Look at its Applications.",
    shown=Shown.COMMAND_LINE,
)
NOT_ABORTED_IN_TIME = message(
    'Promotion "{name}" is still {phase} after {time}{why}; does a controller run?',
    do="The abort stays asked for. `kargo-py why promotion NAME` says what it waits for; `--force` does not wait.",
    shown=Shown.COMMAND_LINE,
)
CHANGES_ALL_THE_TIME = message(
    'Promotion "{name}" was changed by others each time it was to be written; try again',
    do="Nothing was changed. Try again; if it stays so, see who writes to the Promotion all the time.",
    shown=Shown.COMMAND_LINE,
)

REVIEWS: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
_TRIES: Final = 5

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Told:
    """Nothing is to be written; ``done``: it is over, ``refused``: otherwise than asked for."""

    text: str
    done: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """This is to be written as the annotation."""

    annotation: str


def decide(promotion: JsonObject, actor: str, *, force: bool) -> Ask | Told:
    """What an abort of *promotion* by *actor* takes."""
    name, phase = identity(promotion)[1], phase_of(promotion)
    if phase == PromotionPhase.ABORTED:
        return Told(ABORTED_BEFORE(name=name), done=True)
    if _is_over(promotion):
        return Told(ENDED_OTHERWISE(name=name, phase=phase), done=True, refused=True)
    asked = _asked(promotion)
    if asked is not None and (asked.force or not force):
        return Told(BEING_ABORTED(name=name, actor=asked.by))
    wanted = {"action": "terminate", "actor": actor, "controlPlane": False, **({"force": True} if force else {})}
    return Ask(json.dumps(wanted, separators=(",", ":"), ensure_ascii=False))


def _asked(promotion: JsonObject) -> Abort | None:
    """The abort that was asked for before, the one in force; one that nobody can read is none."""
    kept = latched_abort(at(promotion, "status", "state"))
    annotation = at(promotion, "metadata", "annotations", ANNOTATION_ABORT)
    try:
        new = read_abort(annotation) if isinstance(annotation, str) else None
    except AbortError:
        return kept
    if kept is not None and new is not None:
        return Abort(kept.actor, kept.force or new.force, kept.since)
    return kept or new


async def actor_of(session: Session) -> str:
    """Who asks, as Kargo names users of Kubernetes; what the kubeconfig calls them where the server does not say."""
    review = encode({"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
    try:
        answer = await session.client.create(REVIEWS, "", review, codec=JSON)
    except (ApiError, OutcomeUnknown):
        # Kubernetes before 1.28 does not serve it, and nothing was changed by asking.
        answer = {}
    if user := text(answer, "status", "userInfo", "username"):
        return f"kubernetes:{user}"
    return f"kubeconfig:{session.user}" if session.user else UNKNOWN_ACTOR


def abort(name: str, where: Where, out: Print, *, force: bool, wait: bool, patience: timedelta | None) -> None:
    """Ask for the abort of a Promotion, and wait for it if that is wanted."""

    async def work() -> None:
        async with connected(where) as session:
            if await ask(session, name, out, force=force) or not wait:
                return
            await until_aborted(session, name, out, patience)

    run(work(), PROMOTIONS)


async def ask(session: Session, name: str, out: Print, *, force: bool) -> bool:
    """Have the abort asked for; True if it is over already. Raises KubeError."""
    actor = await actor_of(session)
    for _ in range(_TRIES):
        promotion = await read(session, PROMOTIONS, name)
        decision = decide(promotion, actor, force=force)
        if isinstance(decision, Told):
            if decision.refused:
                fail(decision.text)
            out(decision.text)
            return decision.done
        try:
            await _write(session, promotion, decision.annotation)
        except Conflict:
            continue
        out(FORCE_ASKED(name=name, actor=actor) if force else ABORT_ASKED(name=name, actor=actor))
        return False
    return fail(CHANGES_ALL_THE_TIME(name=name))


async def _write(session: Session, promotion: JsonObject, annotation: str) -> None:
    meta = JSON.meta(promotion)
    annotations = {ANNOTATION_ABORT: annotation}
    body = {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
    await guarded_patch(
        session.client,
        PROMOTIONS,
        Key(session.namespace, meta.key.name),
        encode(body),
        codec=JSON,
        landed=lambda found: at(found, "metadata", "annotations", ANNOTATION_ABORT) == annotation,
    )


async def until_aborted(session: Session, name: str, out: Print, patience: timedelta | None) -> None:
    """Wait until the Promotion has ended, and say what it waits for; that it is not Aborted then ends it all."""
    promotions: Cache[JsonObject] = Cache(
        session.client, PROMOTIONS, codec=JSON, namespace=session.namespace, projection=drop_managed_fields
    )
    key = Key(session.namespace, name)
    news = News()
    last: JsonObject = {}
    try:
        async with asyncio.timeout(patience.total_seconds() if patience is not None else None), following(promotions):
            news.of(promotions, lambda _old, _new: None)
            said, uid = "", ""
            while True:
                found = promotions.get(key)
                if found is None or (uid and JSON.meta(found).uid != uid):
                    fail(DELETED_MEANWHILE(name=name))
                last, uid = found, JSON.meta(found).uid
                if _is_over(found):
                    break
                if (line := STILL(name=name, phase=phase_of(found), why=_why(found))) != said:
                    out(line)
                said = line
                await news.wait()
    except TimeoutError:
        time = in_short(patience or timedelta())
        fail(NOT_ABORTED_IN_TIME(name=name, phase=phase_of(last), time=time, why=_why(last)))
    if phase_of(last) != PromotionPhase.ABORTED:
        fail(ENDED_OTHERWISE(name=name, phase=phase_of(last)))
    out(IS_ABORTED(name=name, why=_why(last)))


def _is_over(promotion: JsonObject) -> bool:
    return phase_of(promotion) in {phase for phase in PromotionPhase if phase.terminal}


def _why(promotion: JsonObject) -> str:
    said = text(promotion, "status", "message") or text(promotion, "status", "stepExecutionMetadata", -1, "message")
    return f": {said}" if said else ""
