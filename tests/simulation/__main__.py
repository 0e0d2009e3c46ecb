"""``python -m tests.simulation``: play histories until the Laws are broken, or all are played.

--seeds N [--first F]   the seeds F to F+N-1
--fresh N               N seeds that nobody has tried, drawn at random and printed
--seed S [--only I,J]   one seed, or a part of what happens in it
--shrink                make what is found (of many seeds: the first) as short as it gets
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.plan import Plan, plan
from tests.simulation.report import tell
from tests.simulation.shrink import shrink
from tests.simulation.simulation import Told, run


def main(arguments: Sequence[str]) -> int:
    """Play what is asked for; 1 if a Law was broken."""
    asked = _read(arguments)
    if asked.seed is not None:
        return _one(plan(asked.seed), asked.only, shorter=asked.shrink)
    seeds = list(range(asked.first, asked.first + asked.seeds))
    if asked.fresh:
        start = random.SystemRandom().randrange(10**6, 10**9)
        _say(f"fresh seeds: {start} to {start + asked.fresh - 1}")
        seeds += range(start, start + asked.fresh)
    return _many(seeds, asked.processes, shorter=asked.shrink)


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="F")
    parser.add_argument("--fresh", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, metavar="S")
    parser.add_argument("--only", type=numbers, metavar="I,J", help="the numbers of what shall happen, or: none")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    asked = parser.parse_args(arguments)
    if asked.seed is None and not asked.seeds and not asked.fresh:
        parser.error("say how many --seeds, or which --seed")
    return asked


def numbers(text: str) -> Sequence[int]:
    """The numbers in ``3,7``; in ``none`` there are none."""
    return [] if text == "none" else [int(number) for number in text.split(",")]


def _one(whole: Plan, only: Sequence[int] | None, *, shorter: bool) -> int:
    told = run(whole if only is None else whole.only(only))
    if shorter:
        told = _shorter(told)
    _say(tell(told))
    return bool(told.violations)


def _shorter(told: Told) -> Told:
    return run(shrink(told.plan, told.violations[0].law)) if told.violations else told


def play(seed: int) -> tuple[int, str]:
    """What the seed breaks, "" if nothing; an error of the simulation itself counts, too."""
    try:
        told = run(plan(seed))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
        return seed, f"seed {seed}: {type(error).__name__}: {error}"
    return seed, tell(told) if told.violations else ""


def shortened(seed: int) -> str:
    """The same in fewer happenings; where the simulation itself fails, why there is no such thing."""
    try:
        return tell(_shorter(run(plan(seed))))
    except Exception as error:  # noqa: BLE001 - the seeds to come are played all the same
        return f"seed {seed}: not made shorter: {type(error).__name__}: {error}"


def _many(seeds: Sequence[int], processes: int, *, shorter: bool) -> int:
    began = time.monotonic()
    broken = []
    for seed, how in _played(seeds, processes):
        if how:
            broken.append(seed)
            _say(how)
            if shorter and len(broken) == 1:
                _say(shortened(seed))
    took = time.monotonic() - began
    which = f": {', '.join(map(str, broken))}" if broken else ""
    _say(f"{len(seeds)} seeds in {took:.0f} s ({len(seeds) / took:.1f} a second): {len(broken)} broke a Law{which}")
    return bool(broken)


def _played(seeds: Sequence[int], processes: int) -> Iterator[tuple[int, str]]:
    if processes == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(play, seeds, chunksize=5)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
