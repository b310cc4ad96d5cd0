"""A look misses nothing: not what changed while it was taken over, nor after an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import pytest

from bridge.broker.management.listing import Listing, Row
from bridge.engine.administration import upkeep as upkeep_module
from bridge.engine.administration.upkeep import DOUBT_MS, Upkeep
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.topology import names
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import EntityTable
from bridge.topology.lacking import SHARED
from bridge.topology.resources import Binding, Exchange, Queue, Topology
from bridge.topology.wanted import WantedResources
from tests.fixtures.waiting import until

NEWEST = Capabilities.of("4.3.6")
ORDERS = model.Queue(name="orders")


def _shown(resource: Exchange | Queue | Binding) -> dict[str, Any]:
    """Return a resource as the management API shows it."""
    row = asdict(resource)
    if isinstance(resource, Binding):
        row["destination_type"] = "exchange" if resource.to_exchange else "queue"
    return row


class RabbitMQ:
    """A virtual host, and the definitions that it should stand for.

    Attributes:
        live: what is there.
    """

    def __init__(self) -> None:
        self.live = Topology()
        self._table = EntityTable()
        self._changed: set[str] = set()
        self.find = self.known = self._table.find
        self.bindings = ()

    def track(self) -> set[str]:
        """Return the set of changed entities."""
        return self._changed

    def change(self, entity: model.Entity) -> None:
        """Change a definition."""
        self._table.apply({entity.path: entity})
        self._changed.add(entity.path)

    async def listing(
        self, kind: str, columns: Sequence[str] = (), unless: bytes = b""
    ) -> Listing | None:
        """List what is there; an answer like the last one is none."""
        found = [Row(str(row), row) for row in map(_shown, getattr(self.live, kind))]
        digest = repr(found).encode()
        return None if unless == digest else Listing(digest, found)

    async def others(self) -> list[bytes]:
        """There are no other bridges."""
        return []

    def note_conflicts(self, conflicts: object) -> None:
        """There are none."""


def upkeep_of(rabbitmq: RabbitMQ, capabilities: Callable[[], Capabilities]) -> Upkeep:
    """Return the upkeep of a process that leads nothing."""
    any_of = cast(Any, rabbitmq)
    return Upkeep(any_of, any_of, any_of, capabilities, any_of, any_of, lambda path, since_ms: None)


async def test_a_look_after_one_that_failed_finds_what_that_should_have_found() -> None:
    """The entities that had changed are taken over again."""
    rabbitmq = RabbitMQ()
    failures = [RuntimeError("no memory")]

    def capabilities() -> Capabilities:
        if failures:
            raise failures.pop()
        return NEWEST

    upkeep = upkeep_of(rabbitmq, capabilities)
    rabbitmq.change(ORDERS)
    with pytest.raises(RuntimeError):
        await upkeep.look(lambda path: True)
    assert set(await upkeep.look(lambda path: True)) == {SHARED, "orders"}


async def test_a_look_that_begins_during_another_one_hides_nothing_from_it() -> None:
    """The list that it reads is judged by all that is wanted by then."""
    rabbitmq = RabbitMQ()
    may_go_on, is_waiting = threading.Event(), threading.Event()

    def capabilities() -> Capabilities:
        is_waiting.set()
        may_go_on.wait()
        return NEWEST

    upkeep = upkeep_of(rabbitmq, capabilities)
    rabbitmq.change(ORDERS)
    first = asyncio.create_task(upkeep.look(lambda path: True))
    await until(is_waiting.is_set)
    second = asyncio.create_task(upkeep.look(lambda path: True))
    for _ in range(100):
        await asyncio.sleep(0.001)
    may_go_on.set()
    for look in (first, second):
        assert set(await look) == {SHARED, "orders"}


def test_what_is_wanted_can_be_read_while_entities_change() -> None:
    """A thread reads it beside the event loop."""
    wanted = WantedResources()
    wanted.put("orders", ORDERS, NEWEST)
    read = [wanted.exchanges, wanted.queues, wanted.bindings]
    before = [next(each) for each in read]
    wanted.put("bills", model.Queue(name="bills"), NEWEST)
    assert all(before)
    assert all("bills" not in str(each) for rest in read for each in rest)


class Leaders:
    """The leaders of a process.

    Attributes:
        led: the entities that it leads.
        elsewhere: those that another process leads.
        again: the entities whose next term publishes again.
    """

    def __init__(self) -> None:
        self.led: set[str] = set()
        self.elsewhere: set[str] = set()
        self.again: list[tuple[str, set[str]]] = []
        self.leads = self.led.__contains__
        self.is_elsewhere = self.elsewhere.__contains__

    def begin_look(self) -> None:
        """A look begins."""

    def end_look(self, lacking: object) -> None:
        """A look ends."""

    async def learn(self, front: str, lacking: set[str]) -> None:
        """Read a journal."""

    def stop_for(self, front: str, lacking: set[str]) -> bool:
        """End a term."""
        self.again.append((front, set(lacking)))
        return True

    def has_noted(self, front: str) -> bool:
        """Its next term has not begun."""
        return False


def _all_there() -> Topology:
    wanted = WantedResources()
    wanted.put("orders", ORDERS, NEWEST)
    return Topology.of([*wanted.exchanges, *wanted.queues, *wanted.bindings])


def _without_route(there: Topology) -> Topology:
    gone = names.active_exchange("orders"), "orders"
    left = [each for each in there.bindings if (each.source, each.destination) != gone]
    assert len(left) == len(there.bindings) - 1
    return replace(there, bindings=tuple(left))


def _starting() -> tuple[RabbitMQ, Upkeep, Leaders]:
    rabbitmq, leaders = RabbitMQ(), Leaders()
    upkeep = upkeep_of(rabbitmq, lambda: NEWEST)
    upkeep.leading = leaders
    rabbitmq.change(ORDERS)
    rabbitmq.live = _without_route(_all_there())
    return rabbitmq, upkeep, leaders


async def test_a_start_that_begins_again_publishes_again_what_a_lost_route_hid() -> None:
    """Its first attempt has made the route, and failed later: the second finds it there."""
    rabbitmq, upkeep, leaders = _starting()
    await upkeep.begin()
    rabbitmq.live = _all_there()
    await upkeep.begin()
    leaders.led.add("orders")
    assert await upkeep.look(lambda path: True) == []
    assert leaders.again == [("orders", {"orders"})]


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_however_long_a_start_takes_a_lost_route_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, *, is_elsewhere: bool
) -> None:
    """Until another process has led the entity, which has looked itself."""
    rabbitmq, upkeep, leaders = _starting()
    await upkeep.begin()
    rabbitmq.live = _all_there()
    if is_elsewhere:
        leaders.elsewhere.add("orders")
    later_ms = now_ms() + 10 * DOUBT_MS
    monkeypatch.setattr(upkeep_module, "now_ms", lambda: later_ms)
    await upkeep.look(lambda path: True)
    leaders.elsewhere.clear()
    leaders.led.add("orders")
    await upkeep.look(lambda path: True)
    assert leaders.again == ([] if is_elsewhere else [("orders", {"orders"})])
