"""A look misses nothing: not what changed while it was taken over, nor after an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from bridge.broker.management.listing import Listing
from bridge.engine.administration.upkeep import Upkeep
from bridge.model import entity as model
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import EntityTable
from bridge.topology.lacking import SHARED
from bridge.topology.wanted import WantedResources
from tests.fixtures.waiting import until

NEWEST = Capabilities.of("4.3.6")
ORDERS = model.Queue(name="orders")


class RabbitMQ:
    """A virtual host in which there is nothing, and the definitions that it should stand for."""

    def __init__(self) -> None:
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
        """List nothing; an answer like the last one is none."""
        return None if unless == b"nothing" else Listing(b"nothing", [])

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
