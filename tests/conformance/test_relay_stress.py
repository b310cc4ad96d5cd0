"""Routes through a tap that plays Azure under stress: at the source, and at the target.

Whatever happens, each message is at the target, in its order where that is kept. A gateway in
memory numbers what comes twice, as Azure does without duplicate detection.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from bridge.model.entity import Queue
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.side import Side
from bridge.relay.running.relay import Relay
from bridge.relay.running.status import RouteStatus
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import KEY, RULE_NAME
from tests.conformance.remote import text, texts
from tests.conformance.served import Certified, client_tls, gateway, queue_of, server_tls
from tests.conformance.test_relay import bodies, count_in, fill, side
from tests.fixtures.tap import (
    BUSY,
    BUSY_TEXT,
    Play,
    Tap,
    busy,
    close,
    cut,
    detach,
    refuse,
    tap,
    timed_out,
)
from tests.fixtures.waiting import until

QUEUE = Queue(name="q", lock_duration_ms=5_000)
CONTROL = Queue(name="busbridge-relay", lock_duration_ms=5_000, requires_session=True)
COUNT = 60

DISABLED = refuse("com.microsoft:entity-disabled", "Messaging entity 'q' is currently disabled.")
FULL = refuse("amqp:resource-limit-exceeded", "The entity has reached its maximum size.")


@dataclass
class Between:
    """A route with a tap before its source or its target."""

    azure: Tap
    relay: Relay
    status: RouteStatus
    source: Any
    target: Any
    from_port: int
    to_port: int


@asynccontextmanager
async def between(certified: Certified, where: str, **options: Any) -> AsyncIterator[Between]:
    """Run a route from `q` to `q` with a tap before one of them."""
    server = server_tls(certified)
    async with (
        gateway(namespace=MemoryNamespace(QUEUE, CONTROL)) as (plain, plain_port),
        gateway(queue=QUEUE, tls=server) as (tapped, tapped_port),
        tap(tapped_port, bridge_tls=client_tls(certified), tls=server) as azure,
    ):
        far = Side(
            name="azure",
            id="azure",
            host="one.servicebus.windows.net",
            connection_string=(
                "Endpoint=sb://one.servicebus.windows.net;"
                f"SharedAccessKeyName={RULE_NAME};SharedAccessKey={KEY}"
            ),
            custom_endpoint_address=f"sb://localhost:{azure.port}",
            ca_file=str(certified[0]),
        )
        near = side("local", plain_port)
        sides = (far, near) if where == "source" else (near, far)
        source, target = (Place(each, "q") for each in sides)
        route = Route(name="orders", source=source, target=target, **options)
        control = Place(near, CONTROL.name)
        relay = Relay(RelayFile({each.name: each for each in sides}, (route,), control))
        relay.start()
        (status,) = relay.statuses
        served = (tapped, plain) if where == "source" else (plain, tapped)
        ports = (tapped_port, plain_port) if where == "source" else (plain_port, tapped_port)
        try:
            yield Between(azure, relay, status, *served, *ports)
        finally:
            await relay.stop()


PLAYS: list[tuple[str, str, Play]] = [
    ("target", "send", busy),
    ("target", "send", timed_out),
    ("target", "send", cut),
    ("target", "send", detach()),
    ("target", "send", DISABLED),
    ("target", "send", FULL),
    ("target", "sent", cut),
    ("target", "sent", detach()),
    ("target", "attach", busy),
    ("source", "settle", busy),
    ("source", "settle", cut),
    ("source", "settle", detach()),
    ("source", "settled", cut),
    ("source", "attach", busy),
    ("source", "deliver", cut),
    ("source", "deliver", detach()),
    ("source", "deliver", close("amqp:connection:forced", "The connection was inactive.")),
]


@pytest.mark.parametrize(("where", "moment", "play"), PLAYS)
async def test_nothing_is_lost(certified: Certified, where: str, moment: Any, play: Play) -> None:
    """Each message is at the target, and the source is empty in the end."""
    async with between(certified, where) as both:
        both.azure.when(moment, play, address="q", times=2)
        await fill(both.from_port, texts(COUNT // 2))
        await until(lambda: len(both.azure.played) >= 1)
        await fill(both.from_port, [text(str(each)) for each in range(COUNT // 2, COUNT)])
        await until(lambda: both.status.relayed >= COUNT)
        await until(lambda: not count_in(both.source) and not queue_of(both.source).locked)
        found = await bodies(both.to_port)
        assert set(found) == {str(each) for each in range(COUNT)}
        doubt = moment in ("sent", "settle", "settled") or (moment, play) == ("send", timed_out)
        if not doubt:
            assert len(found) == COUNT


@pytest.mark.parametrize(("where", "moment", "play"), PLAYS)
async def test_an_order_is_kept(certified: Certified, where: str, moment: Any, play: Play) -> None:
    """By messages that come for the first time; what was on its way when a link ended, too."""
    async with between(certified, where, order="entity", credit=20) as both:
        both.azure.when(moment, play, address="q", times=2)
        await fill(both.from_port, texts(COUNT))
        await until(lambda: both.status.relayed >= COUNT)
        await until(lambda: not count_in(both.source) and not queue_of(both.source).locked)
        found = await bodies(both.to_port)
        assert list(dict.fromkeys(found)) == [str(each) for each in range(COUNT)]


async def test_a_throttled_target_has_its_pause(certified: Certified) -> None:
    """The relay pauses as long as Azure asks for, at least 4 s, and releases no message."""
    async with between(certified, "target") as both:
        both.azure.when("send", busy, address="q")
        began_s = time.monotonic()
        await fill(both.from_port, texts(5))
        await until(lambda: both.status.relayed == 5)
        assert time.monotonic() - began_s > 3.9
        assert {each.delivery_count for each in queue_of(both.target).active} == {0}


async def test_locks_are_renewed_while_a_target_is_busy(certified: Certified) -> None:
    """For longer than a lock lasts: nothing comes a second time."""
    async with between(certified, "target") as both:
        both.azure.when("send", busy, address="q", times=3)
        await fill(both.from_port, texts(5))
        await until(lambda: both.status.relayed == 5)
        await until(lambda: not count_in(both.source) and not queue_of(both.source).locked)
        assert both.status.incomplete == 0
        assert await bodies(both.to_port) == [str(each) for each in range(5)]


async def test_a_refusal_of_the_entity_is_no_messages_fault(certified: Certified) -> None:
    """Disabled: nothing becomes a dead letter, though refused messages do."""
    async with between(certified, "target", on_refused="dead-letter") as both:
        both.azure.when("send", DISABLED, address="q", times=3)
        await fill(both.from_port, texts(5))
        await until(lambda: both.status.relayed == 5)
        assert both.status.refused == 0
        assert await bodies(both.from_port, "q/$DeadLetterQueue") == []


async def test_a_token_that_ends_is_put_anew(certified: Certified) -> None:
    """At either side; messages go on."""
    for where in ("source", "target"):
        async with between(certified, where) as both:
            await fill(both.from_port, texts(10))
            await until(lambda both=both: both.status.relayed == 10)  # type: ignore[misc]
            both.azure.expire_tokens()
            await fill(both.from_port, texts(10))
            await until(lambda both=both: both.status.relayed >= 20)  # type: ignore[misc]


async def test_a_namespace_that_is_busy_for_an_outage_gets_its_messages_later(
    certified: Certified,
) -> None:
    """They are given back after `outage_s`, and go when it takes them again."""
    async with between(certified, "target", outage_s=1.0) as both:
        both.azure.when("send", refuse(BUSY, BUSY_TEXT), address="q", times=2)
        await fill(both.from_port, texts(10))
        await until(lambda: both.status.relayed == 10)
        assert sorted(await bodies(both.to_port), key=int) == [str(each) for each in range(10)]
