"""What happens in one simulated history: who does what when, and what goes wrong, all drawn from a seed.

A plan is a list of :class:`Happening`, each of which can be left out without changing what the others are: that is how
a history that breaks a Law is made short.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from kargo_py.local.apiserver.faults import (
    Delay,
    Drop,
    EndWatch,
    Fault,
    Forget,
    FreezeWatch,
    Match,
    Refuse,
    Rule,
)

JsonObject = dict[str, Any]

APPS = {"dev": ("dev-a", "dev-b", "both"), "staging": ("staging-a", "both"), "prod": ("prod-a",)}
"""The Applications that each Stage may promote to; one belongs to two of them."""

REVISIONS = {"f1": "1" * 40, "f2": "2" * 40}
"""What each piece of Freight is in the repository."""

OURS = "kargo-py"
"""The user agent of our program."""

LONG = 45.0
"""Longer than a client waits for an answer."""

ACTIVE = 120.0
"""Seconds in which things happen; then everybody leaves the rest to the controllers."""


@dataclass(frozen=True, slots=True)
class Mishap:
    """The *number*-th request of this name (``patch promotions/status``) of our program meets a fault."""

    request: str
    number: int
    fault: Fault

    def rule(self) -> Rule:
        """As the server's faults take it."""
        verb, _, path = self.request.partition(" ")
        resource, _, subresource = path.partition("/")
        match = Match(verb=verb, resource=resource, subresource=subresource, user_agent=OURS)
        return Rule(self.fault, match, first=self.number, times=1)

    def __str__(self) -> str:
        return f"{OURS}, {self.request} number {self.number}: {self.fault!r}"


@dataclass(frozen=True, slots=True)
class Act:
    """Somebody does something at a time; ``what`` names a function in :mod:`tests.simulation.acts`."""

    at: float
    what: str
    on: str = ""
    how: JsonObject = field(default_factory=dict)

    def __str__(self) -> str:
        how = f" {json.dumps(self.how)}" if self.how else ""
        return f"{self.at:8.3f} s  {self.what}{' ' if self.on else ''}{self.on}{how}"


Happening: TypeAlias = Act | Mishap


@dataclass(frozen=True, slots=True)
class Plan:
    """One history before it happens."""

    seed: int
    argocd: str
    gap: float
    latency: float
    skew: float
    """Seconds by which our wall clock is ahead of Argo CD's."""
    happenings: Sequence[Happening]
    indices: Sequence[int]
    """The place of each among those that the seed gives."""

    def only(self, indices: Collection[int]) -> Plan:
        """The same with these happenings only."""
        kept = [(i, h) for i, h in zip(self.indices, self.happenings, strict=True) if i in indices]
        return replace(self, happenings=[h for _, h in kept], indices=[i for i, _ in kept])

    @property
    def acts(self) -> Sequence[Act]:
        """What is done by somebody at a time."""
        return [h for h in self.happenings if isinstance(h, Act)]

    @property
    def mishaps(self) -> Sequence[Mishap]:
        """What goes wrong between our program and the server."""
        return [h for h in self.happenings if isinstance(h, Mishap)]

    def __str__(self) -> str:
        head = f"seed {self.seed}: Argo CD {self.argocd}, gap {self.gap * 1000:.0f} ms, clock ahead {self.skew:.0f} s"
        numbered = sorted(
            zip(self.indices, self.happenings, strict=True), key=lambda each: getattr(each[1], "at", float("inf"))
        )
        return "\n".join([head, *(f"  [{index:2}] {happening}" for index, happening in numbered)])


def plan(seed: int) -> Plan:
    """The plan that *seed* stands for."""
    chance = random.Random(f"plan {seed}")
    happenings: list[Happening] = []
    for number in range(chance.choice([1, 2, 3, 5, 8])):
        happenings += _promotion(chance, f"p{number + 1}")
    for _ in range(chance.choice([0, 1, 3])):
        happenings.append(_disturbance(chance, chance.uniform(0, ACTIVE), chance.choice(_ALL_APPS)))
    for _ in range(chance.choice([0, 1, 2])):
        happenings.append(_upheaval(chance))
    for _ in range(chance.choice([0, 0, 1, 3, 6])):
        happenings.append(_mishap(chance))
    happenings += _clock_jumps(seed)
    return Plan(
        seed=seed,
        argocd=chance.choice(["3.5", "3.6"]),
        gap=chance.choice([0.004, 0.008, 0.05]),
        latency=chance.choice([0.0005, 0.002, 0.01]),
        skew=chance.choice([0.0, 0.0, 3600.0, -7200.0, 86400.0 * 400]),
        happenings=happenings,
        indices=range(len(happenings)),
    )


_ALL_APPS = sorted({name for names in APPS.values() for name in names})


def _moment(chance: random.Random) -> float:
    """How long after something: the races are in the first milliseconds, the rest takes up to a minute."""
    return chance.uniform(0, chance.choice([0.03, 0.3, 4.0, 60.0]))


def _promotion(chance: random.Random, name: str) -> list[Happening]:
    """A Promotion, how its syncs go, and who meddles with it."""
    at = chance.uniform(0, ACTIVE / 2)
    stage = chance.choice(sorted(APPS))
    apps = chance.sample(APPS[stage], chance.randint(1, min(2, len(APPS[stage]))))
    made: list[Happening] = []
    made += [Act(at, "script", app, script) for app in apps if (script := chance.choice(_SCRIPTS))]
    made.append(Act(at, "promote", name, {"stage": stage, "apps": apps, **_options(chance)}))
    for _ in range(chance.choice([0, 1, 2, 3])):
        moment = at + _moment(chance)
        made.append(chance.choice(_MEDDLERS)(chance, moment, name, chance.choice(apps)))
    return made


_SCRIPTS: Sequence[JsonObject] = (
    {},
    {},
    {"hang": True},
    {"hang": True},
    {"fail": "the server says no"},
    {"error": "the repository is gone"},
    {"fail": "not yet", "times": 1},
    {"duration": 5.0},
    {"ends_twice": True},
)


def _options(chance: random.Random) -> JsonObject:
    how: JsonObject = {"freight": chance.choice(sorted(REVISIONS)), "update": chance.random() < 0.9}
    if chance.random() < 0.3:
        how["onAbort"] = "revert"
    if chance.random() < 0.3:
        how["timeout"] = chance.choice(["2s", "20s", "1m"])
        how["onTimeout"] = chance.choice(["detach", "terminate"])
    return how


_Meddler: TypeAlias = Callable[[random.Random, float, str, str], Act]


def _abort(chance: random.Random, at: float, name: str, _app: str) -> Act:
    return Act(at, "abort", name, {"force": True} if chance.random() < 0.15 else {})


def _delete(_chance: random.Random, at: float, name: str, _app: str) -> Act:
    return Act(at, "delete promotion", name)


def _kill(chance: random.Random, at: float, _name: str, _app: str) -> Act:
    return Act(at, "kill", "", {"back after": chance.choice([0.05, 1.0, 20.0])})


def _other(chance: random.Random, at: float, _name: str, app: str) -> Act:
    return _disturbance(chance, at, app)


_MEDDLERS: Sequence[_Meddler] = (_abort, _abort, _delete, _kill, _other, _other)

_DISTURBANCES = (
    "start",
    "overwrite",
    "replace",
    "remove operation",
    "terminate",
    "recreate",
    "edit spec",
    "refresh",
    "skip reconcile",
    "unauthorize",
    "drift",
    "degrade",
    "finish hooks",
    "break application",
)


def _disturbance(chance: random.Random, at: float, app: str) -> Act:
    """What somebody does to an Application."""
    what = chance.choice(_DISTURBANCES)
    how: JsonObject = {}
    if what == "finish hooks":
        how = {"ok": chance.random() < 0.7}
    if what in {"skip reconcile", "unauthorize", "degrade", "break application"}:
        how = {"for": chance.choice([1.0, 20.0])}
    return Act(at, what, app, how)


def _upheaval(chance: random.Random) -> Act:
    """What happens to a whole program, or what nobody should write."""
    at = chance.uniform(0, ACTIVE)
    possible: Sequence[Callable[[], Act]] = [
        lambda: _kill(chance, at, "", ""),
        lambda: Act(at, "stop", "", {"back after": chance.choice([0.05, 10.0])}),
        lambda: Act(at, "pause", "", {"for": chance.choice([0.05, 2.0, 40.0])}),
        lambda: Act(at, "cut off", "", {"for": chance.choice([0.5, 10.0, 50.0])}),
        lambda: Act(at, "stop Argo CD", "", {"back after": chance.choice([1.0, 30.0])}),
        lambda: Act(at, "compact"),
        lambda: Act(at, "promote badly", "", {"config": chance.choice(BAD_CONFIGS)}),
        lambda: Act(at, "annotate badly", f"p{chance.randint(1, 4)}"),
        lambda: Act(at, "relabel stage", chance.choice(sorted(APPS))),
    ]
    return chance.choice(possible)()


BAD_CONFIGS: Sequence[Any] = (
    {"apps": []},
    {"apps": [{"name": "no-such-app"}]},
    {"apps": [{"name": 7}]},
    {"apps": [{"name": "dev-a", "sources": [{"repoURL": "https://elsewhere", "desiredRevision": "x"}]}]},
    {"apps": [{"name": "dev-a", "namespace": "../.."}], "more": {"deep": [[[[[[1]]]]]]}},
    {"apps": [{"name": "${{ vars.app }}"}]},
)

_REQUESTS = {
    "patch applications": 6,
    "patch promotions/status": 6,
    "patch promotions": 3,
    "patch stages/status": 4,
    "patch freights/status": 3,
    "get applications": 3,
    "get promotions": 2,
    "get stages": 2,
    "get freights": 2,
    "list promotiontasks": 2,
    "list clusterpromotiontasks": 2,
    "create events": 3,
    "list applications": 2,
    "list promotions": 2,
    "watch applications": 2,
    "watch promotions": 2,
    "watch stages": 2,
    "watch promotiontasks": 2,
}
"""What may go wrong, and up to which of its number."""


_ENDINGS: Sequence[Literal["clean", "cut", "torn"]] = ("clean", "cut", "torn")


def _clock_jumps(seed: int) -> list[Happening]:
    """Our wall clock is set; drawn by itself, so that a seed is what it was before there was this."""
    chance = random.Random(f"clock {seed}")
    return [
        Act(chance.uniform(0, ACTIVE), "set clock", "", {"by": chance.choice([86400.0, 90.0, -90.0, -86400.0])})
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]


def _mishap(chance: random.Random) -> Mishap:
    """Something that goes wrong with one request of ours."""
    request = chance.choice(sorted(_REQUESTS))
    number = chance.randint(1, _REQUESTS[request])
    faults: list[Fault] = [Drop(), Refuse(500), Refuse(429), Delay(chance.choice([1.0, LONG]))]
    verb = request.split()[0]
    if verb == "watch":
        events = chance.randint(0, 8)
        faults += [EndWatch(events, how) for how in _ENDINGS]
        faults += [FreezeWatch(events), FreezeWatch(events), Forget()]
    else:
        faults += [Drop(after=True), Delay(LONG, after=True)]
    if verb in {"patch", "create"}:
        faults += [Drop(after=True), Refuse(504, after=True)]
    if verb == "patch":
        faults.append(Refuse(409))
    return Mishap(request, number, chance.choice(faults))
