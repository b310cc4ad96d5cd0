"""Routes between two gateways in memory: what goes, what waits, and what is given back."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from bridge.model.entity import Queue, SqlFilter
from bridge.model.filters.sql import compile_sql
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.side import Side
from bridge.relay.running.metrics import families
from bridge.relay.running.relay import Relay
from bridge.relay.running.status import RouteState
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import KEY, RULE_NAME
from tests.conformance.remote import remote, text, texts
from tests.conformance.served import QUEUE, gateway, queue_of
from tests.fixtures.waiting import until

SESSIONS = Queue(name="q", lock_duration_ms=5_000, requires_session=True)
SMALL = Queue(name="q", lock_duration_ms=5_000, max_message_size_kb=1)


def side(name: str, port: int) -> Side:
    """A side on this machine."""
    return Side(
        name=name,
        id=name,
        host=f"localhost:{port}",
        connection_string=(
            f"Endpoint=sb://localhost:{port};SharedAccessKeyName={RULE_NAME};"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        ),
    )


@asynccontextmanager
async def relaying(from_port: int, to_port: int, **options: Any) -> AsyncIterator[Relay]:
    """Run one route from `q` to `q`."""
    here, there = side("azure", from_port), side("local", to_port)
    route = Route(name="orders", source=Place(here, "q"), target=Place(there, "q"), **options)
    relay = Relay(RelayFile({"azure": here, "local": there}, (route,)))
    relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def fill(port: int, messages: list[RemoteMessage]) -> None:
    """Send messages to a queue, 50 in a batch."""
    async with remote(port) as namespace:
        sender = await namespace.sender("q")
        for start in range(0, len(messages), 50):
            await sender.send(messages[start : start + 50])


async def bodies(port: int, path: str = "q", session_id: str | None = None) -> list[str]:
    """The bodies of a queue, in order."""
    found: list[RemoteMessage] = []
    async with remote(port) as namespace:
        if session_id is None:
            receiver = await namespace.receiver(path, "receive-and-delete")
        else:
            receiver = await namespace.session_receiver(path, session_id, "receive-and-delete")
        while more := await receiver.receive(500, 0.3):
            found += [each.message for each in more]
    return [each.data.decode() for each in found]


def count_in(served: Any) -> int:
    """How many messages wait in a gateway's queue."""
    return len(queue_of(served).active)


async def test_messages_go_from_one_namespace_to_the_other() -> None:
    """All of them, in their order, once; the source has none any more."""
    async with gateway() as (source, from_port), gateway() as (target, to_port):
        await fill(from_port, texts(200))
        async with relaying(from_port, to_port) as relay:
            await until(lambda: count_in(target) == 200)
            (status,) = relay.statuses
            await until(lambda: status.relayed == 200 and not status.unconfirmed)
            assert status.state is RouteState.RUNNING
            assert not relay.reasons
        assert not queue_of(source).active
        assert not queue_of(source).locked
        assert sorted(await bodies(to_port), key=int) == [str(each) for each in range(200)]


async def test_a_stop_that_was_asked_for_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """The end of the relay's own connections is in no log: it would look like a fault."""
    caplog.set_level(logging.INFO, "busbridge.remote")
    caplog.set_level(logging.INFO, "busbridge.relay")
    async with gateway() as (_, from_port), gateway() as (target, to_port):
        async with relaying(from_port, to_port) as relay:
            (status,) = relay.statuses
            await fill(from_port, texts(20))
            caplog.clear()
            await until(lambda: count_in(target) == 20 and not status.unconfirmed)
        assert [each.getMessage() for each in caplog.records] == []


async def test_links_and_connections_that_end_come_back() -> None:
    """At either side, again and again; nothing is lost."""
    async with gateway() as (source, from_port), gateway() as (target, to_port):
        async with relaying(from_port, to_port):
            for turn in range(6):
                await fill(from_port, [text(f"{turn}-{each}") for each in range(50)])
                for connection in list((source, target)[turn % 2].connections):
                    connection.say_goodbye()
            await until(lambda: not count_in(source) and not queue_of(source).locked)
        found = await bodies(to_port)
        assert set(found) == {f"{turn}-{each}" for turn in range(6) for each in range(50)}


async def test_a_target_that_stays_away_gives_everything_back() -> None:
    """By `released`: no delivery is counted, and nothing is locked."""
    async with (
        gateway() as (source, from_port),
        gateway() as (target, to_port),
        relaying(from_port, to_port, outage_s=1.0) as relay,
    ):
        (status,) = relay.statuses
        await until(lambda: status.state is RouteState.RUNNING)
        await target.stop()
        await fill(from_port, texts(20))
        await until(lambda: status.state is RouteState.PAUSED)
        await until(lambda: count_in(source) == 20)
        assert not queue_of(source).locked
        assert {each.delivery_count for each in queue_of(source).active} == {0}
        (reason,) = relay.reasons
        assert "orders" in reason
        assert "not" in status.last_error


async def test_sessions_keep_their_order() -> None:
    """Several at once; each of them in order, whatever links end."""
    ids = [f"s{each}" for each in range(12)]
    async with (
        gateway(queue=SESSIONS) as (_, from_port),
        gateway(queue=SESSIONS) as (target, to_port),
    ):
        for session_id in ids:
            await fill(from_port, [text(str(each), session_id) for each in range(20)])
        async with relaying(from_port, to_port, sessions_at_once=3) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed >= 60)
            for connection in list(target.connections):
                connection.say_goodbye()
            await until(lambda: status.relayed >= 12 * 20)
            await until(lambda: not status.unconfirmed)
        for session_id in ids:
            found = await bodies(to_port, session_id=session_id)
            first = list(dict.fromkeys(found))
            assert first == [str(each) for each in range(20)], found


async def test_what_a_filter_does_not_take_is_completed() -> None:
    """`else = "complete"`: it goes nowhere."""
    taken = compile_sql(SqlFilter(expression="sys.Label = 'yes'"), uuid4)
    labelled = [
        RemoteMessage.of(
            data=str(each).encode(),
            properties=MessageProperties(subject=("yes", "no")[each % 2]),
        )
        for each in range(20)
    ]
    async with gateway() as (source, from_port), gateway() as (_, to_port):
        await fill(from_port, labelled)
        async with relaying(from_port, to_port, filter=taken) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed + status.filtered == 20)
            await until(lambda: not queue_of(source).locked)
        assert await bodies(to_port) == [str(each) for each in range(0, 20, 2)]
        assert not count_in(source)


@pytest.mark.parametrize("last", ["dead-letter", "complete"])
async def test_what_a_filter_does_not_take_goes_the_next_routes_way(last: str) -> None:
    """By `else` from one to the next, each with counts of its own; then what the last one says."""
    labels = "red", "blue", "other"
    messages = [
        RemoteMessage.of(
            data=f"{labels[each % 3]}-{each}".encode(),
            properties=MessageProperties(subject=labels[each % 3]),
        )
        for each in range(30)
    ]
    queues = MemoryNamespace(QUEUE, Queue(name="r", lock_duration_ms=5_000))
    async with gateway() as (source, from_port), gateway(namespace=queues) as (_, to_port):
        here, there = side("azure", from_port), side("local", to_port)
        red = Route(
            name="red", source=Place(here, "q"), target=Place(there, "r"),
            filter=compile_sql(SqlFilter(expression="sys.Label = 'red'"), uuid4), otherwise="blue",
        )  # fmt: skip
        blue = Route(
            name="blue", source=Place(here, "q"), target=Place(there, "q"),
            filter=compile_sql(SqlFilter(expression="sys.Label = 'blue'"), uuid4), otherwise=last,
        )  # fmt: skip
        await fill(from_port, messages)
        relay = Relay(RelayFile({"azure": here, "local": there}, (red, blue)))
        relay.start()
        second, first = relay.statuses
        assert (first.name, second.name) == ("red", "blue")
        await until(lambda: first.relayed == second.relayed == second.filtered == 10)
        await until(lambda: not count_in(source) and not queue_of(source).locked)
        assert first.state is second.state is RouteState.RUNNING
        assert first.filtered == first.unconfirmed == second.unconfirmed == 0
        told = [each for family in families(relay.statuses) for each in family.samples]
        relayed = {each.labels["route"]: each.value for each in told if "relayed" in each.name}
        assert relayed == {"red": 10, "blue": 10}
        await relay.stop()
        assert first.state is second.state is RouteState.STOPPED
        assert first.relayed == second.relayed == 10
        assert await bodies(to_port, "r") == [f"red-{each}" for each in range(0, 30, 3)]
        assert await bodies(to_port) == [f"blue-{each}" for each in range(1, 30, 3)]
        dead = [f"other-{each}" for each in range(2, 30, 3)] if last == "dead-letter" else []
        assert await bodies(from_port, "q/$DeadLetterQueue") == dead


async def test_the_lag_is_the_age_of_the_oldest_message() -> None:
    """As a peek shows it; none when there is no message."""
    async with gateway() as (_, from_port), gateway() as (_, to_port):
        await fill(from_port, texts(30))
        async with relaying(from_port, to_port, rate_per_s=1.0) as relay:
            (status,) = relay.statuses
            await until(lambda: status.lag_s > 1.0)
        async with relaying(from_port, to_port) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed and not status.unconfirmed)
            await until(lambda: status.lag_s == 0.0)


@pytest.mark.parametrize("on_refused", ["dead-letter", "stop"])
async def test_what_the_target_refuses_for_good(on_refused: str) -> None:
    """A dead letter at the source with the target's words; or the route stops, and says why."""
    large = [text("x" * 2_000 if each == 5 else str(each)) for each in range(10)]
    async with gateway() as (source, from_port), gateway(queue=SMALL) as (_, to_port):
        await fill(from_port, large)
        async with relaying(from_port, to_port, on_refused=on_refused) as relay:
            (status,) = relay.statuses
            if on_refused == "stop":
                await until(lambda: status.state is RouteState.STOPPED)
                assert "message-size-exceeded" in status.last_error
                await until(lambda: not queue_of(source).locked)
                return
            await until(lambda: status.relayed == 9 and status.refused == 1)
            await until(lambda: not queue_of(source).locked)
        assert await bodies(from_port, "q/$DeadLetterQueue") == ["x" * 2_000]
        assert len(await bodies(to_port)) == 9


async def test_a_rate() -> None:
    """No more in a second than the route says."""
    async with gateway() as (_, from_port), gateway() as (_, to_port):
        await fill(from_port, texts(30))
        async with relaying(from_port, to_port, rate_per_s=10.0) as relay:
            (status,) = relay.statuses
            began_s = time.monotonic()
            await until(lambda: status.relayed == 30)
            assert time.monotonic() - began_s > 1.7


async def test_a_stop_gives_back_what_is_not_sent() -> None:
    """Sends under way are finished, the other messages are released."""
    async with gateway() as (source, from_port), gateway() as (target, to_port):
        await fill(from_port, texts(300))
        async with relaying(from_port, to_port, rate_per_s=50.0) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed >= 50)
        assert not queue_of(source).locked
        assert count_in(source) + count_in(target) == 300
        assert count_in(target) == status.relayed
