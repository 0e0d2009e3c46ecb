"""Work of steps in threads and in programs: it ends with who waits for it, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import psutil
import pytest

from kargo_py.steps import work
from kargo_py.steps.step import Work
from kargo_py.steps.work import CommandError, in_thread, in_thread_for, run_command
from kargo_py.testing.clock import simulated_time

SECRET = "s3cr3t"


def _none_left(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


class TestThreads:
    """``in_thread``."""

    async def test_what_comes_of_it(self) -> None:
        """Results and errors are those of the function, which runs in another thread, in the same context."""
        variable: ContextVar[str] = ContextVar("variable", default="unset")
        variable.set("set")

        def function(a: int, *, b: int) -> tuple[int, bool, str]:
            return a + b, threading.current_thread() is threading.main_thread(), variable.get()

        assert await in_thread(function, 1, b=2) == (3, False, "set")
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            await in_thread(sys.exit, 3)

    async def test_the_end_of_an_iteration(self) -> None:
        """No future can have it, and the wait ends all the same."""
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_thread(next, iter(()))

    async def test_a_machine_without_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """That is an error like others, and takes no thread away from those after it."""
        monkeypatch.setattr(work, "THREADS", 1)
        async with asyncio.timeout(10):
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", _none_left)
                for _ in range(3):
                    with pytest.raises(RuntimeError, match="can't start new thread"):
                        await in_thread(int)
            assert await in_thread(lambda: 1) == 1

    async def test_being_cancelled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The wait ends at once; the thread counts until it has ended, and threads of other kinds are not touched."""
        monkeypatch.setattr(work, "THREADS", 1)
        release, begun = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def hangs() -> None:
            loop.call_soon_threadsafe(begun.set)
            release.wait()

        task = asyncio.ensure_future(in_thread(hangs))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        second = asyncio.ensure_future(in_thread(lambda: "second"))
        assert await in_thread_for(Work.NETWORK, lambda: "other") == "other"
        assert not second.done()
        release.set()
        assert await second == "second"

    async def test_many(self) -> None:
        """No thread is left over."""
        assert sum(await asyncio.gather(*(in_thread(lambda: 1) for _ in range(500)))) == 500
        left = [thread for thread in threading.enumerate() if thread.name == "kargo-py step"]
        async with asyncio.timeout(60):
            for thread in left:
                await asyncio.to_thread(thread.join)

    async def test_in_simulated_time(self) -> None:
        """Time stands still while a thread works."""
        with simulated_time(asyncio.get_running_loop()) as clock:
            began = clock.now()
            async with asyncio.timeout(3600):
                assert await in_thread(lambda: threading.Event().wait(0.05)) is False
            assert clock.now() == began

    def test_one_that_hangs_does_not_keep_the_process(self) -> None:
        """The event loop, and the process, end without it."""
        thread = threading.Event()

        async def main() -> None:
            async with asyncio.timeout(0.05):
                await in_thread(thread.wait)

        with pytest.raises(TimeoutError):
            asyncio.run(main())
        assert all(each.daemon for each in threading.enumerate() if each.name == "kargo-py step")
        thread.set()


class TestPrograms:
    """``run_command``."""

    @pytest.fixture(autouse=True)
    def nothing_left(self) -> Iterator[None]:
        """No process is left, nor what is left of one."""
        before = {child.pid for child in psutil.Process().children(recursive=True)}
        yield
        assert {child.pid for child in psutil.Process().children(recursive=True)} <= before

    async def test_what_comes_of_it(self, tmp_path: Path) -> None:
        """Outputs, code, input and directory."""
        script = "cat; pwd; echo trouble >&2; exit 3"
        done = await run_command(["sh", "-c", script], input=b"hello\n", cwd=tmp_path)
        assert (done.code, done.stderr, done.dropped) == (3, b"trouble\n", (0, 0))
        assert done.stdout == f"hello\n{tmp_path}\n".encode()
        with pytest.raises(CommandError, match=r"^sh ended with code 3: trouble$"):
            done.check()
        (await run_command(["true"])).check()

    async def test_input_that_nobody_reads(self) -> None:
        """It is no error: the program says whether it was one."""
        assert (await run_command(["true"], input=b"x" * 1_000_000)).code == 0

    async def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the program needs to be found and to reach out is passed on, and no more than that."""
        monkeypatch.setenv("TOKEN", SECRET)
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
        done = await run_command(["env"], env={"OWN": "1"})
        names = {line.partition("=")[0] for line in done.stdout.decode().splitlines()}
        assert {"OWN", "PATH", "HTTPS_PROXY"} <= names
        assert SECRET not in done.stdout.decode()

    async def test_much_output(self) -> None:
        """The end of each is kept, and it is told how much is missing."""
        script = "seq 300000; seq 100000 >&2"
        done = await run_command(["sh", "-c", script], max_output=1000)
        assert [len(done.stdout), len(done.stderr)] == [1000, 1000]
        assert [done.stdout[-7:], done.stderr[-7:]] == [b"300000\n", b"100000\n"]
        assert done.dropped == (len("".join(f"{n}\n" for n in range(1, 300001))) - 1000, 588895 - 1000)

    @pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["heeds SIGTERM", "ignores SIGTERM"])
    async def test_being_cancelled(self, trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The program ends, and with it all that it has begun; gently if it lets us."""
        monkeypatch.setattr(work, "TERMINATION", 0.2)
        pipe = tmp_path / "begun"
        os.mkfifo(pipe)
        script = f"{trap}sleep 1000 & sleep 1000 & echo begun > {pipe}; wait"
        task = asyncio.ensure_future(run_command(["sh", "-c", script]))
        assert await in_thread(pipe.read_text) == "begun\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_its_time_is_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A time-out is a cancellation; so is a second one while the first is heeded."""
        monkeypatch.setattr(work, "TERMINATION", 1000)

        async def within(seconds: float, script: str) -> None:
            async with asyncio.timeout(seconds):
                await run_command(["sh", "-c", script])

        with pytest.raises(TimeoutError):
            await within(0.1, "sleep 1000")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(within(0.1, "trap '' TERM; while true; do sleep 1000; done"), 0.3)

    async def test_what_it_leaves_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does not keep us waiting, though it holds the pipes, and is ended."""
        monkeypatch.setattr(work, "_LINGERING", 0.2)
        done = await run_command(["sh", "-c", "sleep 1000 & echo done"])
        assert (done.code, done.stdout) == (0, b"done\n")

    async def test_ended_by_a_signal(self) -> None:
        """The text names it."""
        done = await run_command(["sh", "-c", "kill -KILL $$"])
        with pytest.raises(CommandError, match=r"^sh was ended by SIGKILL: it said nothing$"):
            done.check()

    @pytest.mark.parametrize(
        ("command", "cwd", "text"),
        [
            (["no-such-program", SECRET], None, "no-such-program cannot be run: No such file"),
            (["sh", SECRET], "/no/such/place", "sh cannot be run: No such file"),
            (["/etc/passwd", SECRET], None, "passwd cannot be run: Permission denied"),
            (["sh", f"{SECRET}\0"], None, "sh cannot be run: embedded null byte"),
        ],
    )
    async def test_what_cannot_be_run(self, command: list[str], cwd: str | None, text: str) -> None:
        """The text names the program and the reason, and none of the arguments."""
        with pytest.raises(CommandError, match=text) as raised:
            await run_command(command, cwd=cwd)
        assert SECRET not in str(raised.value)
