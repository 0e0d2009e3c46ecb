"""The step in whole Promotions, on an embedded API server, with a list of releases that does as it is told."""

from pathlib import Path

import pytest
from aiohttp import web

PIPELINE = Path(__file__).with_name("pipeline.yaml").read_text()


class Releases:
    """A list of releases."""

    def __init__(self):
        self.entries = {}
        self.calls = []
        self.answers = {"state": "waiting"}

    async def answer(self, request):
        key = request.path.rpartition("/")[2]
        self.calls.append(request.method)
        if request.headers.get("Authorization") != "Bearer s3cret":
            return web.Response(status=403)
        if request.method == "PUT":
            self.entries[key] = await request.json()
        elif request.method == "DELETE":
            del self.entries[key]
        elif key not in self.entries:
            return web.Response(status=404)
        return web.json_response(self.answers)


@pytest.fixture
async def releases():
    releases, app = Releases(), web.Application()
    app.router.add_route("*", "/{path:.*}", releases.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    releases.url = f"http://127.0.0.1:{runner.addresses[0][1]}/shop"
    yield releases
    await runner.cleanup()


async def test_confirmed(kube_api, controller, releases):
    await kube_api.apply(PIPELINE.replace("URL\n", f"{releases.url}\n"))
    releases.answers = {"state": "confirmed"}
    promotion = await kube_api.promote("dev", "shop-1.1")

    assert await promotion.ended() == "Succeeded"
    assert releases.calls == ["GET", "PUT"]
    assert list(releases.entries.values()) == [{"version": "1.1", "notes": []}]
    assert "s3cret" not in str(promotion.current)


async def test_aborted(kube_api, controller, releases):
    await kube_api.apply(PIPELINE.replace("URL\n", f"{releases.url}\n"))
    promotion = await kube_api.promote("dev", "shop-1.1")
    await promotion.until(lambda it: "waiting until 1.1 is confirmed" in it.message)
    await promotion.abort()

    assert await promotion.ended() == "Aborted"
    assert releases.entries == {}


async def test_refused(kube_api, controller, releases):
    await kube_api.apply(PIPELINE.replace("URL\n", f"{releases.url}\n"))
    releases.answers = {"state": "refused", "why": "1.1 has a known fault"}
    promotion = await kube_api.promote("dev", "shop-1.1")

    assert await promotion.ended() == "Failed"
    assert "1.1 has a known fault" in promotion.message


async def test_a_wrong_field(kube_api, controller):
    await kube_api.apply(PIPELINE.replace("URL\n", "ftp://releases.example.com\n"))
    promotion = await kube_api.promote("dev", "shop-1.1")

    assert await promotion.ended() != "Succeeded"
    assert "config.url" in promotion.message
