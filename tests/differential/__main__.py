"""Ask the embedded API server and a real one the same random things: ``python -m tests.differential``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.differential.fuzzing import arena, fuzz
from tests.envtest.server import Options, running


def tell(text: str) -> None:
    """Say something at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run, and tell every kind of difference once, in the fewest steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="of the first sequence")
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--length", type=int, default=15, help="requests in a sequence, without watches")
    parser.add_argument("--kind", default="", help="only kinds with this in their name")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(running(directory, options=Options(audit="off", authorization="AlwaysAllow")))
        both = stack.enter_context(arena(server))
        report = fuzz(
            both,
            seed=options.seed,
            sequences=options.sequences,
            length=options.length,
            kind=options.kind,
            shrink=not options.no_shrink,
            tell=tell,
        )
    tell(str(report))
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
