"""The deletion of an idle entity, in steps that the next leader may repeat.

    1. write the status `Deleting`, also of a topic's subscriptions: bridges refuse the entity
    2. wait 5 s: bridges read the status, and messages under way arrive
    3. ask all bridges and count consumers again; if the entity was used, restore the old status
    4. of a queue or topic: delete its front exchange; if a message came before, restore
    5. delete the exchange whose loss means that there is no way back, the others, the inbox last
    6. delete the definition

All steps run under the entity's change lock. A leader that finds `Deleting` begins with step 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bridge.broker import failpoint
from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError, NotFound
from bridge.broker.ready_counts import queue_state
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.usage import ask_ages
from bridge.engine.bridges import Bridges
from bridge.engine.peers import Peers
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.requests import Sending
from bridge.model import entity as model
from bridge.model.entity import EntityStatus
from bridge.model.errors import ServiceBusError
from bridge.topology import names

SETTLE_S = 5.0
"""The wait between the status `Deleting` and the first deletion."""

ASK_S = 5.0
"""The wait for a bridge's answer; without one the bridge may be using the entity."""

Asked = Callable[[], Awaitable[bool]]

log = logging.getLogger(__name__)


class Disposal:
    """Asks for uses of temporary entities, and deletes idle ones."""

    def __init__(
        self,
        administration: Administration,
        bridges: Bridges,
        connections: ConsumerConnections,
        sending: Sending,
        peers: Peers,
    ) -> None:
        self._administration = administration
        self._bridges = bridges
        self._connections = connections
        self._sending = sending
        self._peers = peers

    async def bridges(self) -> list[bytes]:
        """Return the names of all running bridges."""
        return await self._bridges()

    async def ages_ms(self, paths: Sequence[str]) -> list[list[tuple[int, bool]] | None]:
        """Ask every bridge when its clients used entities last.

        Returns:
            One item for each running bridge: `None` if it did not answer in `ASK_S`, else for each
            entity the time since the last use (ms; -1: never), and whether the bridge refuses it.
        """
        there = await self.bridges()
        return list(await asyncio.gather(*(self._ages_ms(each, paths) for each in there)))

    async def consumed(self, entities: Sequence[model.ReceiveEntity]) -> list[bool]:
        """Return for each entity whether it, or its dead-letter sub-queue, has consumers.

        Of a session entity only the dead-letter sub-queue counts: the shards' owners consume the
        entity without receivers, and bridges report their session receivers.
        """
        with await self._connections.channel() as channel:
            return [await self._is_consumed(channel, each) for each in entities]

    async def drain(self, front: str) -> None:
        """Wait until the leader has handled all messages in a queue's or topic's inbox."""
        await self._sending.drain(front)

    async def delete(self, path: str, is_idle: Asked, is_drained: Asked) -> None:
        """Delete an entity, if it is idle.

        Args:
            is_idle: asks all bridges again, once they refuse the entity.
            is_drained: returns whether no message came before the front exchange was deleted.

        Raises:
            BrokerError, ServiceBusError: some steps are done; call this again.
        """
        administration = self._administration
        async with administration.alone(names.front_path(path)):
            there = await administration.read(path)
            if there is None:
                return
            if await self._has_way_back(there) and not await self._refuse_all(
                there, is_idle, is_drained
            ):
                return
            await self._finish(there)

    async def finish(self, path: str) -> None:
        """Finish the deletion of an entity that is past the way back: it has no leader any more."""
        administration = self._administration
        async with administration.alone(names.front_path(path)):
            there = await administration.read(path)
            is_deleting = there is not None and there.status is EntityStatus.DELETING
            if there is not None and is_deleting and not await self._has_way_back(there):
                await self._finish(there)

    async def _refuse_all(self, there: model.Entity, is_idle: Asked, is_drained: Asked) -> bool:
        gone = _with_subscriptions(there)
        for each in gone:
            if each.status is not EntityStatus.DELETING:
                marked = replace(
                    each, status=EntityStatus.DELETING, status_before=each.status.value
                )
                await self._administration.define(marked)
        failpoint.reach("disposal.marked")
        await asyncio.sleep(SETTLE_S)
        if not await is_idle():
            await self._restore(gone)
            return False
        if isinstance(there, model.Subscription):
            return True
        await self._delete_exchange(there, names.front(there.path))
        failpoint.reach("disposal.closed")
        if await is_drained():
            return True
        await self._restore(gone)
        return False

    async def _restore(self, gone: Sequence[model.Entity]) -> None:
        """Restore the status and resources of entities; a topic last, as it was marked first."""
        administration = self._administration
        for each in reversed(gone):
            there = await administration.read(each.path)
            if there is not None and there.status is EntityStatus.DELETING:
                status = EntityStatus(there.status_before or EntityStatus.ACTIVE.value)
                await administration.write(replace(there, status=status, status_before=""))

    async def _finish(self, there: model.Entity) -> None:
        administration = self._administration
        await self._delete_exchange(there, _no_way_back(there))
        failpoint.reach("disposal.begun")
        gone = [each.path for each in reversed(_with_subscriptions(there))]
        for path in gone:
            await administration.remove_resources(path)
        failpoint.reach("disposal.removed")
        for path in gone:
            await administration.undefine(path)

    async def _has_way_back(self, there: model.Entity) -> bool:
        with await self._administration.channel(there.path) as channel:
            try:
                await channel.declarations.declare_exchange(_no_way_back(there), passive=True)
            except NotFound:
                return False
        return True

    async def _delete_exchange(self, of: model.Entity, exchange: str) -> None:
        with await self._administration.channel(of.path) as channel:
            await channel.declarations.delete_exchange(exchange)

    async def _ages_ms(self, bridge: bytes, paths: Sequence[str]) -> list[tuple[int, bool]] | None:
        try:
            async with asyncio.timeout(ASK_S):
                answer = await ask_ages(self._peers, bridge, paths)
        except (ServiceBusError, BrokerError, TimeoutError, ValueError) as error:
            log.warning("disposal.unanswered bridge=%s error=%r", bridge.hex(), error)
            return None
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return [(age_ms, bool(refuses)) for age_ms, refuses in pairs]

    @staticmethod
    async def _is_consumed(channel: Channel, entity: model.ReceiveEntity) -> bool:
        queues = [names.dead_letter_queue(entity.path)]
        if not entity.requires_session:
            queues.append(names.active_queue(entity.path))
        for queue in queues:
            if (await queue_state(channel, queue)).consumers:
                return True
        return False


def _no_way_back(entity: model.Entity) -> str:
    """Return the exchange that is deleted first: while it exists, an entity can be restored."""
    if isinstance(entity, model.Subscription):
        return names.dead_letter_exchange(entity.path)
    return names.active_exchange(entity.path)


def _with_subscriptions(entity: model.Entity) -> list[model.Entity]:
    return [entity, *entity.subscriptions] if isinstance(entity, model.Topic) else [entity]
