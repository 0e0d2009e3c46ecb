"""Measure ``kargo-py run`` with the benchmark script, on an API server of its own (`make bench`).

The server is set up as the benchmark's own kube-up.sh does it (every user may do anything, etcd waits for the disk,
audit log in batches), so that figures can be compared. Each run has a folder in bench-runs/: result, logs, audit log.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.envtest import access
from tests.envtest.binaries import BinariesMissing
from tests.envtest.server import ApiServer, Options, ServerFailed, running

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "bench-runs"
PROGRAM = Path(sys.executable).with_name("kargo-py")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; the exit code is its own, or 2 when it could not be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.envtest.bench", description="Measure kargo-py run.")
    parser.add_argument("--script", type=Path, required=True, help="promo_bench.py")
    parser.add_argument("bench", nargs="+", help="scenarios and options of promo_bench.py, after --")
    options = parser.parse_args(arguments)
    if not options.script.is_file():
        sys.stderr.write(f"bench: there is no {options.script}: say where it is, `make bench BENCH=…/promo_bench.py`\n")
        return 2
    like_kube_up = Options(audit="batch", authorization="AlwaysAllow", fsync=True)
    try:
        with running(RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", options=like_kube_up) as server:
            return _measure(server, options.script, options.bench)
    except (BinariesMissing, ServerFailed) as failure:
        sys.stderr.write(f"bench: {failure}\n")
        return 2


def _measure(server: ApiServer, script: Path, bench: Sequence[str]) -> int:
    out = server.directory / "result.json"
    processes = server.directory / "pids"
    processes.write_text("".join(f"{name} {pid}\n" for name, pid in server.pids.items()))
    command = [
        *(sys.executable, str(script), *bench),
        *("--crds", str(REPOSITORY / "crds")),
        *("--kubeconfig", str(server.kubeconfig("bench"))),
        *("--argocd-kubeconfig", str(server.kubeconfig("argocd"))),
        *("--audit-log", str(server.audit_log)),
        *("--kube-pids", str(processes)),
        *("--controller-user", access.USERS["controller"].name),
        *("--controller-cmd", shlex.join([str(PROGRAM), "run", "--kubeconfig", str(server.kubeconfig("controller"))])),
        *("--label", "kargo-py"),
        *("--workdir", str(server.directory)),
        *("--out", str(out)),
    ]
    code = subprocess.run(command, check=False).returncode
    sys.stdout.write(f"bench: result in {out.relative_to(REPOSITORY)}\n" if out.exists() else "bench: no result\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
