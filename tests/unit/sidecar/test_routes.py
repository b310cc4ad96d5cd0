"""What is numbered while a route is missing reaches its queue, whatever the leader does then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from bridge.engine.administration.upkeep import Upkeep
from bridge.engine.clock import now_ms
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, SendEntity, Subscription, Tier, Topic
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.leader.routes import Routes, short_of
from bridge.topology import names
from bridge.topology.resources import Topology
from bridge.topology.wanted import WantedResources
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from tests.unit.engine.test_upkeep import NEWEST, RabbitMQ, upkeep_of

COPY = Subscription(topic="news", name="copy", incarnation="0123456789abcdef")
NEWS = Topic(name="news", subscriptions=(COPY,))
ORDERS = Queue(name="orders")


@dataclass
class Term:
    """A term in its takeover, or leading; what it publishes is confirmed at once."""

    state: LeaderState
    is_ready: bool = False
    has_begun: bool = False
    has_failed: bool = False
    ended: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.state.entity.path
        self.in_flight = SimpleNamespace(open={})

    @property
    def entity(self) -> SendEntity:
        """The entity."""
        return self.state.entity

    @property
    def sequencer(self) -> Sequencer:
        """The sequencer of this term and of the last one."""
        assert self.state.sequencer is not None
        return self.state.sequencer

    def lead(self) -> None:
        """Be ready."""
        self.is_ready = self.has_begun = True

    def number(self) -> None:
        """Number a message."""
        item = Item(Properties(delivery_mode=2).encode(), b"")
        self.sequencer.apply(SendCommand(None, (item,)), now_ms())

    def submit(self, publications: list[Publication], *, site: str) -> None:
        """Publish."""

    def fail(self, error: BaseException) -> None:
        """End the term."""
        self.is_ready = False
        self.ended.append(error)


class Process:
    """A process that leads an entity, and looks after its resources."""

    def __init__(self, entity: SendEntity) -> None:
        sequencer = Sequencer(entity, Tier.STANDARD, blank(is_partitioned=False), uuid4)
        self.state = LeaderState(entity, Tier.STANDARD, sequencer=sequencer, leaderless_ms=1)
        self.terms: dict[str, Any] = {}
        self.routes = Routes({entity.path: self.state}, self.terms, now_ms)
        self.rabbitmq = RabbitMQ()
        self.upkeep: Upkeep = upkeep_of(self.rabbitmq, lambda: NEWEST)
        self.upkeep.leading = self.routes
        self.rabbitmq.change(entity)
        for each in entity.subscriptions if isinstance(entity, Topic) else ():
            self.rabbitmq.change(each)
        wanted = WantedResources()
        wanted.put(entity.path, entity, NEWEST)
        self.whole = Topology.of([*wanted.exchanges, *wanted.queues, *wanted.bindings])
        self.rabbitmq.live = self.whole

    def begin_term(self) -> Term:
        """Begin a takeover: the entity was whole before."""
        entity = self.state.entity
        self.terms[entity.path] = term = Term(self.state)
        return term

    def unbind(self, destination: str) -> None:
        """Delete the binding of a queue to the exchange of numbered messages by hand."""
        gone = names.active_exchange(self.state.entity.path), destination
        left = [e for e in self.whole.bindings if (e.source, e.destination) != gone]
        assert len(left) < len(self.whole.bindings)
        self.rabbitmq.live = replace(self.whole, bindings=tuple(left))

    async def look(self) -> list[str]:
        """Look for missing resources."""
        found = await self.upkeep.look(lambda path: True)
        return [each for each in found if each.startswith(self.state.entity.path)]


async def _numbered_before_the_route_is_back(entity: SendEntity, destination: str) -> Process:
    process = Process(entity)
    first = process.begin_term()
    first.lead()
    first.number()
    assert await process.look() == []
    second = process.begin_term()  # RabbitMQ was restarted, say
    process.unbind(destination)
    assert await process.look() != []
    second.lead()  # its takeover does not wait for the binding
    second.number()
    process.rabbitmq.live = process.whole
    assert await process.look() == []
    return process


async def test_a_takeover_that_ends_before_a_subscriptions_binding_is_back() -> None:
    """The subscription lacks what was numbered then, and catches up."""
    process = await _numbered_before_the_route_is_back(NEWS, names.active_queue(COPY.path))
    assert process.state.sequencer is not None
    missed = process.state.sequencer.memory.left_out[short_of(COPY)]
    assert missed.number <= 2


async def test_a_takeover_that_ends_before_a_queues_binding_is_back() -> None:
    """The next term publishes again what the journal alone has."""
    process = await _numbered_before_the_route_is_back(ORDERS, names.active_queue("orders"))
    assert process.state.again_since_ms is not None
    assert cast(Term, process.terms["orders"]).ended
