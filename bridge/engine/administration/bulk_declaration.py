"""Declaring the exchanges, queues and bindings of many entities: some at once, never all.

RabbitMQ writes each declared quorum queue and stream to its disk before it answers. Declarations
that are under way at once share those writes; beyond a few dozen they only wait in RabbitMQ, which
then answers none of them in time. So each of a few channels has a few declarations under way.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import PreconditionFailed
from bridge.model.errors import EntityConflict
from bridge.topology.diff import Action, Change
from bridge.topology.names import SUBSCRIPTIONS, base_of
from bridge.topology.resources import Binding, Exchange, Queue, Resource

CHANNELS_MAX = 4
"""The most channels for a start, each on a connection of its own."""

CHANNEL_CHANGES = 100
"""Changes from which on one more channel is opened."""

WINDOW = 8
"""Declarations of one channel that are under way at once."""

OnProgress = Callable[[int, int], None]
"""Called now and then with the numbers of resources that are made, and of all to be made."""


class BulkDeclaration:
    """The declarations of many entities, in an order that loses no message on the way.

    All exchanges are made before all queues, and these before all bindings. The bindings of one
    entity are made in their order, on one channel.

    Args:
        changes: creations of exchanges, queues and bindings, and deletions of bindings.

    Attributes:
        count: the number of changes.
        made: how many of them have been carried out.
        channels: the number of channels that `run` wants.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self.count = len(changes)
        self.made = 0
        self.channels = channels = min(1 + len(changes) // CHANNEL_CHANGES, CHANNELS_MAX)
        self._phases: list[list[list[Change]]] = []
        for kind in (Exchange, Queue, Binding):
            lanes: list[list[Change]] = [[] for _ in range(channels)]
            for change in changes:
                if isinstance(change.resource, kind):
                    lanes[zlib.crc32(_front(change.resource).encode()) % channels].append(change)
            self._phases.append(lanes)

    async def run(self, channels: Sequence[Channel], on_made: OnProgress) -> None:
        """Carry all changes out; the first error ends the whole, and leaves the rest unmade.

        Raises:
            EntityConflict: a resource exists with other unchangeable settings.
            BrokerError: RabbitMQ refuses something.
        """

        def note() -> None:
            self.made += 1
            on_made(self.made, self.count)

        for lanes in self._phases:
            await at_once(
                _carry_out(lane, channel, note)
                for lane, channel in zip(lanes, channels, strict=True)
            )


async def at_once(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Await all works; the first error cancels the others, and is raised when all have ended."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry_out(
    changes: Sequence[Change], channel: Channel, on_made: Callable[[], None]
) -> None:
    """Carry changes out in order on one channel, `WINDOW` at once."""
    under_way: deque[tuple[Change, asyncio.Future[object]]] = deque()
    try:
        for change in changes:
            if len(under_way) >= WINDOW:
                await _answered(*under_way.popleft())
                on_made()
            under_way.append((change, asyncio.ensure_future(begin(change, channel))))
        while under_way:
            await _answered(*under_way.popleft())
            on_made()
    finally:
        for _, answer in under_way:
            answer.cancel()


async def _answered(change: Change, answer: Awaitable[object]) -> None:
    try:
        await answer
    except PreconditionFailed as error:
        raise EntityConflict(f"{named(change.resource)} is there already: {error.text}") from error


async def declare(change: Change, channel: Channel) -> None:
    """Carry out one change of an exchange, a queue or a binding.

    Raises:
        EntityConflict: the resource exists with other unchangeable settings; the channel is closed.
        BrokerError: RabbitMQ refuses it.
    """
    await _answered(change, begin(change, channel))


def begin(change: Change, channel: Channel) -> Awaitable[object]:
    """Send one change of an exchange, a queue or a binding; return RabbitMQ's answer."""
    resource = change.resource
    match resource:
        case Exchange():
            return channel.declarations.declare_exchange(resource)
        case Queue():
            return channel.declarations.declare_queue(resource)
        case Binding() if change.action is Action.DELETE:
            ends = resource.destination, resource.source, resource.routing_key
            return channel.declarations.unbind_queue(*ends, arguments=resource.arguments)
        case Binding():
            return channel.declarations.bind(resource)
        case _:
            raise TypeError(f"{type(resource).__name__} is not declared on a channel")


def named(resource: Resource) -> str:
    """Return a resource's kind and name."""
    return f"The {type(resource).__name__.lower()} {name_of(resource)!r} of RabbitMQ"


def name_of(resource: Resource) -> str:
    """Return a resource's name; of a binding, its source's."""
    return resource.source if isinstance(resource, Binding) else resource.name


def _front(resource: Resource) -> str:
    """Return the beginning that all resources of a queue, or of a topic, have in their names."""
    return base_of(name_of(resource)).partition(SUBSCRIPTIONS)[0]
