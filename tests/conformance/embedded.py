"""The embedded server in a thread of its own, behind its real door: TLS, a token, a kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.serve import Address, serving
from kargo_py.local.apiserver.server import ApiServer
from tests.conformance.servers import Server


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Server]:
    """Run it; its files are in *directory*."""
    with _loop() as loop:
        core = ApiServer(now=lambda: datetime.now(UTC))
        ended = asyncio.Event()
        ready: Future[Address] = Future()

        async def serve() -> None:
            try:
                async with core, serving(core) as address:
                    ready.set_result(address)
                    await ended.wait()
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(error)
                raise

        async def forget() -> None:
            core.store.forget()

        served = asyncio.run_coroutine_threadsafe(serve(), loop)
        address = ready.result()
        assert address.authority
        assert address.token
        ca_file, config_file = directory / "ca.crt", directory / "kubeconfig"
        ca_file.write_bytes(address.authority)
        kubeconfig.write(config_file, address.kubeconfig())
        try:
            yield Server(
                "embedded", address.url, address.token, ca_file, config_file, lambda: _run(loop, forget()), directory
            )
        finally:
            loop.call_soon_threadsafe(ended.set)
            served.result()


def _run(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run_coroutine_threadsafe(coroutine, loop).result()


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give an event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded API server", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
