"""What requests cost in CPU time: `python -m tests.local.apiserver.measure [objects]`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kargo_py.local.apiserver.wire import Request, Response
from tests.local.apiserver.driving import APPLY, FOOS, MERGE, driver, foo


async def measure(count: int) -> None:
    """Create, read, change and delete *count* objects, and print milliseconds for each."""
    api = await driver()

    async def ask(method: str, url: str, body: Any = None, media: str = "application/json", query: str = "") -> None:
        data = b"" if body is None else json.dumps(body).encode()
        parameters = [("fieldManager", query), ("force", "true")] if query else []
        headers = {"content-type": media, "user-agent": "measure/1"}
        answer = await api.server.handle(Request(method, url, parameters, headers, data))
        assert isinstance(answer, Response)
        assert answer.code < 300, answer.body

    async def each(name: str, times: int, call: Callable[[int], Awaitable[None]]) -> None:
        began = time.process_time()
        for number in range(times):
            await call(number)
        milliseconds = (time.process_time() - began) / times * 1000
        sys.stdout.write(f"{name:<12} {milliseconds:8.3f} ms\n")

    def named(number: int) -> str:
        return f"{FOOS}/f{number:05}"

    def made(number: int, a: int) -> Any:
        return foo(f"f{number:05}", {"a": a}, labels={"p": str(number % 2)})

    await each("create", count, lambda number: ask("POST", FOOS, made(number, 1)))
    await each("get", count, lambda number: ask("GET", named(number)))
    await each("list", 20, lambda _: ask("GET", FOOS))
    await each("merge patch", count, lambda number: ask("PATCH", named(number), {"spec": {"a": 2}}, MERGE))
    await each("status", count, lambda number: ask("PATCH", f"{named(number)}/status", {"status": {"a": 2}}, MERGE))
    await each("apply", count, lambda number: ask("PATCH", named(number), made(number, 3), APPLY, "other"))
    await each("delete", count, lambda number: ask("DELETE", named(number)))


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
