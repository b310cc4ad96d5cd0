"""Routes with a `*`: what comes and goes does not wait for one another."""

from __future__ import annotations

import pytest
from aiohttp import web

from bridge.model.entity import Queue
from bridge.model.name import SubQueue
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.running.relay import Relay
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.remote import remote, text
from tests.conformance.served import gateway
from tests.conformance.test_relay import bodies, side
from tests.fixtures.tap import never, tap
from tests.fixtures.waiting import until

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
NAMES = ("wild-1", "wild-2", "wild-3")
GONE = ("wild-1", "wild-2")


def listing(names: list[str]) -> web.Application:
    """An administration that lists queues by these names."""

    async def answer(_: web.Request) -> web.Response:
        entries = "".join(
            f'<entry><title>{each}</title><content><QueueDescription xmlns="{SERVICE_BUS}"/>'
            "</content></entry>"
            for each in names
        )
        body = f'<feed xmlns="http://www.w3.org/2005/Atom">{entries}</feed>'
        return web.Response(body=body, content_type="application/atom+xml")

    app = web.Application()
    app.router.add_get("/$Resources/Queues", answer)
    return app


def queues() -> MemoryNamespace:
    """A namespace with all queues."""
    return MemoryNamespace(*(Queue(name=each, lock_duration_ms=60_000) for each in NAMES))


@pytest.mark.long
async def test_a_new_entity_waits_for_no_route_that_ends() -> None:
    """Two routes end, each with a batch that the target never answers; a third one begins at once,
    and those that end are shown no more."""
    names = list(GONE)
    source = queues()
    async with (
        gateway(namespace=source, app=listing(names)) as (_, from_port),
        gateway(namespace=queues()) as (_, to_port),
        tap(to_port) as azure,
        remote(from_port) as filled,
    ):
        for each in NAMES:
            await (await filled.sender(each)).send([text(each)])
        for each in GONE:
            azure.when("send", never, address=each, times=99)
        here, there = side("azure", from_port), side("local", azure.port)
        route = Route(name="all", source=Place(here, "wild-*"), target=Place(there, "*"))
        relay = Relay(RelayFile({"azure": here, "local": there}, (route,)), follow_s=1.0)
        relay.start()
        try:
            await until(lambda: len(azure.played) == 2)
            names[:] = ["wild-3"]
            await until(lambda: [each.name for each in relay.statuses] == ["all[wild-3]"])
            (status,) = relay.statuses
            await until(lambda: status.relayed == 1)
            locked = [source._queues[each, SubQueue.NONE].locked for each in GONE]
            assert all(locked), "the new route has waited for the end of the others"
            assert not relay.reasons
            names[:] = NAMES
            azure._rules.clear()
            await until(lambda: len(relay.statuses) == 3)
            await until(lambda: all(each.relayed for each in relay.statuses))
        finally:
            await relay.stop()
        for each in NAMES:
            assert await bodies(to_port, each) == [each]
