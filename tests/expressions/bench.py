"""How many expressions are parsed and evaluated per second, beside the Go library, in one run.

python -m tests.expressions.bench
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from kargo_py.expressions import evaluator
from kargo_py.expressions.evaluator import evaluate
from tests.expressions.golang import VECTORS, environment

EXPRESSIONS = (
    'vars.image + ":" + vars.tag',
    "outputs.push.pr.id == 42",
    "outputs.clone.commit[:7]",
    'vars.env in ["prod", "staging"] && vars.enabled',
    'vars.missing ?? "none"',
    "outputs.nope?.k",
    'response.status >= 200 && response.status < 300 && response.body.state == "merged"',
    "any(response.body.items, .id == 2)",
    'filter(people, .age > 26) | map(.name) | join(", ")',
    'ctx.project + "-" + ctx.stage + "/" + upper(ctx.meta.promotion.actor)',
)
SECONDS = 2.0


def rate(run: Callable[[str], object]) -> float:
    """Expressions per second of CPU time."""
    count, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < SECONDS:
        for expression in EXPRESSIONS:
            run(expression)
        count += len(EXPRESSIONS)
    return count / spent


def library() -> float | None:
    """As :func:`rate`, of the Go library."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    done = subprocess.run(
        [go, "run", ".", "bench"],
        cwd=VECTORS,
        input="\n".join(EXPRESSIONS),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    """Print the figures."""
    here = environment()
    fresh = evaluator._prepared.__wrapped__
    figures = {
        "parsed and evaluated": rate(lambda e: fresh(e).evaluate(here)),
        "evaluated, parsed before": rate(lambda e: evaluate(e, here)),
        "parsed": rate(fresh),
    }
    for name, figure in figures.items():
        sys.stdout.write(f"{name}: {figure:,.0f} per second\n")
    go = library()
    sys.stdout.write(f"the Go library, compiled and evaluated: {go:,.0f} per second\n" if go else "Go is not there\n")


if __name__ == "__main__":
    main()
