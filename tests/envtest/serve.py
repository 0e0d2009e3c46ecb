"""A Kubernetes API server to try kargo-py on, without a cluster (`make cluster`).

It has the CRDs of kargo-py, Argo CD's Application and the namespace argocd, and it ends, with all that is in it, at
SIGINT or SIGTERM. No other part of Kubernetes runs: there are no nodes, and a deleted namespace stays Terminating.
"""

import argparse
import contextlib
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from tests.envtest import crds as definitions
from tests.envtest.binaries import BinariesMissing
from tests.envtest.server import ApiServer, Options, ServerFailed, running

_LOOK_SECONDS = 0.2


class _Refused(Exception):
    """What was asked for is not possible; the text says why."""


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal; the exit code is 0 then, 1 when the server fails, 2 when it cannot be started."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.envtest.serve",
        description="Run a Kubernetes API server with kargo-py's CRDs and Argo CD's Application, until Ctrl-C.",
    )
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="port on 127.0.0.1 [any that is free]")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the kubeconfig and the logs are kept [a temporary one]"
    )
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs are started with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    ready = False
    try:
        with _directory(options.directory) as directory, _server(directory, options.port) as server:
            _tell(server)
            ready = True
            _wait(server)
    except KeyboardInterrupt:
        pass
    except (BinariesMissing, ServerFailed, _Refused) as failure:
        sys.stderr.write(f"serve: {failure}\n")
        return 1 if ready else 2
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to 65535")
    return int(text)


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="kargo-py-cluster-") as made:
            yield Path(made)
        return
    directory = given.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / "lock", timeout=0):
            yield directory
    except Timeout as error:
        raise _Refused(f"another server keeps its files in {directory}: end it, or name another --directory") from error
    except OSError as error:
        raise _Refused(f"--directory {directory}: {error.strerror}") from error


@contextlib.contextmanager
def _server(directory: Path, port: int) -> Iterator[ApiServer]:
    with running(directory, options=Options(audit="off", port=port)) as server:
        definitions.install(server, [*definitions.read(definitions.OURS), definitions.APPLICATION])
        server.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
        yield server


def _tell(server: ApiServer) -> None:
    path = shlex.quote(str(server.kubeconfig("admin")))
    sys.stdout.write(f"kubeconfig {path}; in every other terminal: export KUBECONFIG={path}\n")
    sys.stdout.flush()


def _wait(server: ApiServer) -> None:
    """Until a signal raises KeyboardInterrupt; ServerFailed if a part of the server ends by itself."""
    parts = set(server.pids)
    while not (gone := parts - set(server.pids)):
        time.sleep(_LOOK_SECONDS)
    raise ServerFailed(f"{' and '.join(sorted(gone))} ended by itself; its log is in {server.directory}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
