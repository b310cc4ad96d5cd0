"""Dead letters that RabbitMQ itself moved while their queue was not bound.

RabbitMQ takes a message to be dead-lettered when one queue has it, and the stream of moved messages
is bound beside the dead-letter queue. So when the binding to that queue was deleted by hand, the
stream alone has what expired or was delivered too often before it was made again. From there it
goes to the queue: the entries since the last look that found the binding. Some of them may be in
the queue; a bridge that holds or has settled one drops the second copy.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from bridge.background.retry import retry
from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.broker.streams.stream_reader import StreamEntry, read_stream, since
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.sender import Sender
from bridge.machine.browse.entity_messages import MovedTo
from bridge.machine.browse.places import Places
from bridge.machine.inbox.left_out import as_missed
from bridge.message import moves
from bridge.message.message import Message, facts
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.shards import count_of

RETRY_S = 1.0
DEATH_QUEUE = "x-first-death-queue"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Queue:
    """The queue that the messages died in; see `message.end_rules.Place`."""

    queue: model.ReceiveEntity
    resource: str
    is_dead_letter: bool = False


class DeadLettersAgain:
    """Publishes dead letters again, beside other work."""

    def __init__(self, connections: ConsumerConnections, sender: Sender) -> None:
        self._connections = connections
        self._sender = sender
        self._tasks = Tasks()

    def begin(self, entity: model.ReceiveEntity, since_ms: int) -> None:
        """Publish an entity's dead letters since a time (UTC ms); its resources are there again."""

        async def attempt() -> None:
            await self._publish(entity, since_ms)

        surely = retry(
            attempt,
            wait_s=RETRY_S,
            retryable=lambda error: isinstance(error, BrokerError | ServiceBusError),
        )
        self._tasks.start(surely, f"dead letters of {entity.path}")

    async def close(self) -> None:
        """Stop; a later start does not go on with it."""
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self, entity: model.ReceiveEntity, since_ms: int) -> None:
        found = await self._read(entity, since_ms)
        place = _Queue(entity, names.active_queue(entity.path))
        for each in found:
            assert each.death is not None, "RabbitMQ has dead-lettered it"
            failures = each.died_after(entity.max_delivery_count)
            letter, _ = moves.fitting(moves.dead_letter(place, each, *each.death, {}, failures))
            await self._sender.publish(*letter)
            reach("dead_letters.published")
        log.warning("dead_letters.published_again entity=%s messages=%d", entity.path, len(found))

    async def _read(self, entity: model.ReceiveEntity, since_ms: int) -> list[Message]:
        """Return the dead letters of RabbitMQ's own in the stream of moved messages."""
        reader = reader_of(entity)
        places = Places(entity.path, reader, count_of(entity))
        found: dict[int, Message] = {}

        def take(entry: StreamEntry) -> bool:
            table = entry.properties.headers or {}
            number = places.take(entry.offset, table)
            if number is None:
                return False
            found.pop(number, None)
            if DEATH_QUEUE in table and places.place(number) is MovedTo.DEAD:
                raw = as_missed(entry.properties, None)
                message = Message(*facts(raw, entry.body, "", can_expire=False, reader=reader))
                if message.death is not None:
                    found[number] = message
            return False

        stream = names.moved(entity.front)
        start = since(since_ms // 1000)
        await read_stream(self._connections, stream, start, take, may_be_empty=True)
        return list(found.values())
