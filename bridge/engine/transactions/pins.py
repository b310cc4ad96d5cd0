"""Locks of this process that transactions keep."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.administration.directory import Directory
from bridge.engine.api import Disposition, OnSettled
from bridge.engine.bridge_watch import BridgeWatch
from bridge.engine.clock import later, now_ms
from bridge.engine.sending.requests import Sending
from bridge.engine.settlement.disposition_fields import disposition_of
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import Locked, ProcessLocks
from bridge.engine.settlement.owner import Owner, owns_sessions
from bridge.engine.settlement.settling import Settling, drop_copy, is_of, keep_out, let_go
from bridge.engine.transaction_verbs import PinnedLock
from bridge.machine.queue.inquiries import locked_message
from bridge.machine.queue.locks import Lock
from bridge.message.alarm import Alarm, Later
from bridge.message.locked_source import source_of
from bridge.model.errors import MessageLockLost, ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire import inquiries
from bridge.wire.commits import INQUIRY_BYTES, LockedMessage, OutcomeKind
from bridge.wire.envelope import IDENTITY_BYTES
from bridge.wire.inquiries import Told

PIN_MS: Final = 150_000
"""So long a lock is pinned at most: two minutes of its transaction, and 20 s for the answer."""

Inquire = Callable[[str, bytes], Awaitable[bytes]]
"""Asks an entity's leader: called with the path of the queue or topic, and an envelope."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class LockPin(PinnedLock):
    """A pinned lock, as the entity's leader knows its message.

    Attributes:
        inquiry: the inquiry that the message was delivered after.
    """

    message: LockedMessage
    inquiry: bytes


class Pins:
    """Pins locks of this process, and ends what stays pinned too long.

    Args:
        inquire: asks leaders about messages that another bridge has pinned, perhaps committed, and
            never settled.
        clock: UTC, ms.
        timer: calls a function after some seconds.
    """

    def __init__(
        self,
        locks: ProcessLocks,
        settling: Settling,
        supervisor: Supervisor,
        watch: BridgeWatch,
        inquire: Inquire,
        *,
        clock: Callable[[], int] = now_ms,
        timer: Later = later,
    ) -> None:
        self._locks = locks
        self._settling = settling
        self._supervisor = supervisor
        self._watch = watch
        self._inquire = inquire
        self._clock = clock
        self._ends: OrderedDict[UUID, tuple[int, bytes | None]] = OrderedDict()
        self._asking: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(self._end_overdue, now_ms=clock, later=timer)

    def __repr__(self) -> str:
        return f"Pins({len(self._ends)})"

    def __len__(self) -> int:
        """Return the number of pinned locks."""
        return len(self._ends)

    def pin(self, path: EntityPath, token: UUID, by: bytes | None = None) -> LockPin:
        """Pin a lock.

        Args:
            by: the name of the bridge whose transaction pins it, b"" if it does not say so; `None`:
                this one.

        Raises:
            MessageLockLost: it has ended, or is pinned already.
        """
        found = self._locks.find(token)
        if found is None or not is_of(found[0], path) or not found[0].holds(found[1]):
            raise MessageLockLost(texts.LOCK_LOST)
        pinned = self._locks.pin(token)
        if pinned is None:
            raise MessageLockLost(texts.LOCK_LOST)
        owner, holding = pinned
        keep_out(owner, holding)
        due_ms = self._clock() + PIN_MS
        self._ends[token] = due_ms, by
        self._alarm.set(due_ms)
        if by:
            self._watch.begin(by, token, partial(self._over, token))
        return LockPin(path, token, locked_message(holding, source_of(owner)), holding.inquiry)

    def release(self, token: UUID) -> None:
        """Let a lock go on with the time that it had left; no more if it was lost."""
        self._forget(token)
        lock = self._locks.take_pinned(token)
        if lock is not None:
            self.put_back(token, lock)

    def take(self, token: UUID) -> Lock[Locked] | None:
        """Take a pinned lock for its commit: nothing else ends it; `None` if it was lost."""
        lock = self._locks.take_pinned(token)
        self._forget(token)
        if lock is not None and lock.held[0].holds(lock.held[1]):
            return lock
        return None

    def put_back(self, token: UUID, lock: Lock[Locked]) -> None:
        """Let a lock go on that was taken, with the time that it had left."""
        owner, holding = lock.held
        if not owner.holds(holding):
            return
        self._locks.restore(token, lock)
        if let_go(owner, holding) and owns_sessions(owner):
            self._locks.renew(
                [token]
            )  # it ends with its session's lock, which was renewed, perhaps

    def carry_out(self, lock: Lock[Locked], disposition: Disposition, done: OnSettled) -> None:
        """Carry out what was decided about a lock that was taken; see `Settling.carry_out`."""
        self._settling.carry_out(lock.held, disposition, done)

    def channel_of(self, token: UUID) -> Channel:
        """Return the channel that has delivered a pinned message.

        Raises:
            MessageLockLost: the lock was lost.
        """
        found = self._locks.find(token)
        if found is None or not found[0].holds(found[1]):
            raise MessageLockLost(texts.LOCK_LOST)
        channel = found[1].channel
        return channel.channel if isinstance(channel, ReceivingChannel) else channel

    async def close(self) -> None:
        """Stop the timer and the questions; locks end with their channels."""
        self._alarm.stop()
        for each in self._asking:
            each.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _end_overdue(self) -> None:
        """End the pins whose transactions have not ended in time."""
        at_ms = self._clock()
        while self._ends:
            token, (due_ms, _) = next(iter(self._ends.items()))
            if due_ms > at_ms:
                self._alarm.set(due_ms)
                return
            self._over(token)

    def _over(self, token: UUID) -> None:
        """End a pin whose time is over, or whose bridge is gone."""
        by = self._forget(token)
        lock = self._locks.take_pinned(token)
        if lock is None:
            return
        owner, holding = lock.held
        log.warning("pin.over entity=%s number=%d", owner.path, holding.number)
        if by is not None and (owner.is_deferred or owns_sessions(owner)):
            # It does not go back to RabbitMQ unchanged, so nobody else would ask.
            ask = partial(self._ask, owner, holding)
            asking = self._supervisor.repeat("inquiry", ask, subject=str(owner.path)).task
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        else:
            self._give_back(owner, holding)

    def _forget(self, token: UUID) -> bytes | None:
        """Forget a pin; return by whom it was."""
        _, by = self._ends.pop(token, (0, None))
        if by:
            self._watch.end(by, token)
        return by

    def _give_back(self, owner: Owner, holding: HeldMessage) -> None:
        if let_go(owner, holding):
            self._settling.expire(owner, holding)

    async def _ask(self, owner: Owner, holding: HeldMessage) -> None:
        """Ask what was decided about a message, and do that; an older commit of it is refused."""
        if not owner.holds(holding):
            return
        identity = os.urandom(IDENTITY_BYTES)
        message = locked_message(holding, source_of(owner))
        body = inquiries.encode_inquiry(identity, [message])
        (told,) = inquiries.decode_answer(
            await self._inquire(names.front_path(owner.queue.path), body)
        )
        self._answered(owner, holding, identity[:INQUIRY_BYTES], told)

    def _answered(self, owner: Owner, holding: HeldMessage, inquiry: bytes, told: Told) -> None:
        if told is None:
            holding.inquiry = inquiry
            self._give_back(owner, holding)
        elif told[0] is OutcomeKind.DROP:
            drop_copy(owner, holding)
        else:
            self._settling.carry_out((owner, holding), disposition_of(*told), _noted)


def _noted(error: ServiceBusError | None) -> None:
    """Do nothing: what was lost comes again, and whoever gets it asks."""


async def inquire(directory: Directory, sending: Sending, path: str, body: bytes) -> bytes:
    """Ask the leader of a queue or topic; return the content of its answer.

    Raises:
        ServiceBusError: it has not answered.
    """
    return (await sending.ask_leader(directory.send_entity(EntityPath(path)), body)).content


async def prove(channel: Channel) -> None:
    """Return when RabbitMQ has said that a channel is open: its messages are nobody else's.

    Raises:
        MessageLockLost: it is closed.
    """
    try:
        await channel.barrier()
    except BrokerError as error:
        raise MessageLockLost(f"{texts.LOCK_LOST} ({error})") from error
