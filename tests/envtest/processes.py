"""Child processes that never outlive the tests, however the tests end.

Each child runs in a session of its own (a Ctrl-C meant for pytest does not reach it first) and, on Linux, is killed by
the kernel when its parent dies, even by SIGKILL and even while the child is stopped. Elsewhere only an orderly end of
the tests ends it.
"""

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

# The kernel's parent-death signal belongs to the *thread* that started the child: were it one of asyncio's worker
# threads, the child would die with the event loop. So one thread, which lives as long as the process, starts them all.
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts-children")

# Runs between fork and exec of the real program. Not a preexec_fn: that may deadlock when there are other threads.
_LAUNCHER: Final = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    PR_SET_PDEATHSIG = 1
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
parent, started = int(sys.argv[1]), int(sys.argv[2])
if os.getppid() != parent:
    sys.exit("the parent ended before the child began")
os.set_inheritable(started, False)  # closed by exec: so the parent knows
os.execv(sys.argv[3], sys.argv[3:])
"""


class ChildProcess:
    """One running program, its output appended to a log file.

    What keeps it from being left over is in force when the constructor returns.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        """Start *command*; its first word is a path."""
        self.name = name
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._process = _STARTER.submit(self._spawn, [str(word) for word in command]).result()
        atexit.register(self.kill)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        started, started_by_child = os.pipe()
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(started_by_child)]
        with self.log.open("ab") as output, os.fdopen(started, "rb") as pipe:
            try:
                process = subprocess.Popen(
                    [*launcher, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[started_by_child],
                )
            finally:
                os.close(started_by_child)
            pipe.read()  # until the program itself runs, or could not
        return process

    @property
    def pid(self) -> int:
        """Process id, and id of the process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """As of Popen.returncode; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """All that this run of the program has written."""
        with self.log.open("rb") as output:
            output.seek(self._log_start)
            return output.read().decode(errors="replace")

    def tail(self, lines: int = 15) -> str:
        """The last *lines* of the output, headed by where all of it is."""
        return "\n".join([f"--- {self.name}, end of {self.log}:", *self.output().splitlines()[-lines:]])

    def pause(self) -> None:
        """Stop it where it stands: its sockets stay open and nothing answers."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to its whole process group, and wait until it is gone; nothing when it is already."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        atexit.unregister(self.kill)
