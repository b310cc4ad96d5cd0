"""The works of `busbridge bench` on a namespace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.batching import BYTES_MAX, OVERHEAD, RESERVED
from bridge.commands.bench_load import CANCEL, COME_S, IN_SESSION, MORE_S, WORKS, BenchLoad
from bridge.commands.clock import now_ms
from bridge.operations.changes import scheduled
from bridge.operations.measurement import MessageAccount, RoundLimit
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteNotFound, RemoteTimeout
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Complete
from bridge.wire.amqp10.message_properties import MessageProperties

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace
    from bridge.remote.receiver import RemoteReceiver
    from bridge.remote.sender import RemoteSender

LATER_MS: Final = 3_600_000
"""What is scheduled is so far ahead: it is cancelled long before."""

ID_BYTES: Final = 64
"""Bytes of a message's properties, at most."""

ACCEPTING: Final = 8
"""Sessions that are held at a time."""

Message = tuple[str, RemoteMessage]
"""A message and its id."""


class NamespaceBench:
    """The works on two queues of a namespace.

    Args:
        queue: without sessions.
        sessions: the one with sessions.
    """

    def __init__(
        self, name: str, namespace: RemoteNamespace, queue: str, sessions: str, load: BenchLoad
    ) -> None:
        self.name = name
        self._namespace = namespace
        self._queue = queue
        self._sessions = sessions
        self._load = load
        self._body = load.body
        self._senders: dict[str, RemoteSender] = {}

    @property
    def works(self) -> Collection[str]:
        """Which works it does."""
        return tuple(WORKS)

    async def round(
        self, work: str, limit: RoundLimit, account: MessageAccount
    ) -> Mapping[str, float]:
        """Do a round; see `Bench`."""
        if work == "schedule":
            rates = await self._schedule(limit, account)
        elif work == "sessions":
            rates = await self._receive_sessions(limit, account)
        elif work == "receive":
            await self._fill(account, limit.messages)
            limit.begin()
            await self._receive(limit, account)
            rates = {work: limit.rate()}
        else:
            sender = await self._sender(self._queue)
            limit.begin()
            if work == "batches":
                await self._send_batches(sender, limit, account)
            else:
                count = self._load.in_flight if work == "in-flight" else 1
                await _all(self._send_singles(sender, limit, account) for _ in range(count))
            rates = {work: limit.rate()}
        if work != "sessions":
            await self._take_the_rest(account)
        return rates

    # -- sending

    async def _send_singles(
        self, sender: RemoteSender, limit: RoundLimit, account: MessageAccount
    ) -> None:
        while limit.take():
            message_id, message = self._message(account)
            await sender.send((message,))
            account.note_sent(message_id)
            limit.note_done()

    async def _send_batches(
        self, sender: RemoteSender, limit: RoundLimit, account: MessageAccount
    ) -> None:
        count_max = self._in_batch(sender)
        while count := limit.take(count_max):
            await self._send(sender, [self._message(account) for _ in range(count)], account)
            limit.note_done(count)

    async def _fill(self, account: MessageAccount, count: int) -> None:
        """Send messages, of which nothing is measured."""
        sender = await self._sender(self._queue)
        count_max = self._in_batch(sender)
        while count > 0:
            batch = [self._message(account) for _ in range(min(count, count_max))]
            await self._send(sender, batch, account)
            count -= len(batch)

    async def _send(
        self, sender: RemoteSender, batch: Sequence[Message], account: MessageAccount
    ) -> None:
        await sender.send([message for _, message in batch])
        for message_id, _ in batch:
            account.note_sent(message_id)

    def _message(self, account: MessageAccount, session_id: str | None = None) -> Message:
        message_id = account.new_id()
        properties = MessageProperties(message_id=message_id, group_id=session_id)
        return message_id, RemoteMessage.of(data=self._body, properties=properties)

    async def _sender(self, queue: str) -> RemoteSender:
        if queue not in self._senders:
            self._senders[queue] = await self._namespace.sender(queue)
        return self._senders[queue]

    def _in_batch(self, sender: RemoteSender) -> int:
        """Return how many messages a batch has: as many as asked for, if they fit."""
        room = (sender.max_batch_size or BYTES_MAX) - RESERVED
        return max(1, min(self._load.batch, room // (len(self._body) + ID_BYTES + OVERHEAD)))

    # -- receiving

    async def _receive(self, limit: RoundLimit, account: MessageAccount) -> None:
        ahead = self._load.in_flight
        receiver = await self._namespace.receiver(self._queue, credit=ahead)
        try:
            while count := limit.take(ahead):
                found = await receiver.receive(count, COME_S, more_s=0)
                limit.give_back(count - len(found))
                if not found:
                    return
                await self._complete(receiver, found, account)
                limit.note_done(len(found))
        finally:
            await receiver.close()

    async def _complete(
        self, receiver: RemoteReceiver, found: Sequence[RemoteDelivery], account: MessageAccount
    ) -> None:
        await receiver.settle_all(found, Complete())
        for each in found:
            account.note_came(each.message.message_id)

    async def _take_the_rest(self, account: MessageAccount) -> None:
        """Receive what has not come yet, and what comes though nothing is to come any more."""
        receiver = await self._namespace.receiver(self._queue, credit=self._load.in_flight)
        try:
            while found := await receiver.receive(
                self._load.in_flight, COME_S if account.missing else MORE_S, more_s=0
            ):
                await self._complete(receiver, found, account)
        finally:
            await receiver.close()

    # -- scheduling

    async def _schedule(self, limit: RoundLimit, account: MessageAccount) -> Mapping[str, float]:
        management = await self._namespace.management(self._queue)
        count_max = self._in_batch(await self._sender(self._queue))
        waiting: list[tuple[str, int]] = []
        limit.begin()
        while count := limit.take(count_max):
            batch = [self._message(account) for _ in range(count)]
            due_ms = now_ms() + LATER_MS
            numbers = await management.schedule([scheduled(each, due_ms) for _, each in batch])
            for (message_id, _), number in zip(batch, numbers, strict=True):
                account.note_sent(message_id)
                waiting.append((message_id, number))
            limit.note_done(count)
        rate = limit.rate()
        began_s = time.perf_counter()
        for at in range(0, len(waiting), count_max):
            batch_of = waiting[at : at + count_max]
            try:
                await management.cancel([number for _, number in batch_of])
            except RemoteNotFound:
                continue  # they are missing: none can be due yet
            for message_id, _ in batch_of:
                account.note_came(message_id)
        took_s = time.perf_counter() - began_s
        return {"schedule": rate, CANCEL: len(waiting) / took_s if waiting else 0.0}

    # -- sessions

    async def _receive_sessions(
        self, limit: RoundLimit, account: MessageAccount
    ) -> Mapping[str, float]:
        sender = await self._sender(self._sessions)
        names = [f"session-{at}" for at in range(-(-limit.messages // IN_SESSION))]
        left = dict.fromkeys(names, IN_SESSION)
        await _all(self._fill_sessions(sender, names, account) for _ in range(ACCEPTING))
        free = len(left)
        limit.begin()

        async def take() -> None:
            nonlocal free
            while free and (count := limit.take(IN_SESSION)):
                free -= 1
                limit.note_done(await self._take_session(account, left, count, COME_S))

        await _all(take() for _ in range(ACCEPTING))
        rate = limit.rate()
        while account.missing and await self._take_session(account, left, IN_SESSION, COME_S):
            pass
        await self._take_session(account, left, IN_SESSION, MORE_S)  # nothing more is to come
        return {"sessions": rate}

    async def _fill_sessions(
        self, sender: RemoteSender, names: list[str], account: MessageAccount
    ) -> None:
        while names:
            name = names.pop()
            batch = [self._message(account, name) for _ in range(IN_SESSION)]
            await self._send(sender, batch, account)

    async def _take_session(
        self, account: MessageAccount, left: dict[str, int], count: int, within_s: float
    ) -> int:
        """Receive messages of the next session; return how many came; 0: there is none.

        Args:
            left: how many each session has still.
            count: how many at most.
        """
        try:
            receiver = await self._namespace.session_receiver(
                self._sessions, max_wait_s=within_s, credit=count
            )
        except RemoteTimeout:
            return 0
        name, done = receiver.session_id, 0
        try:
            if left.get(name, 0) > 0:
                count = min(count, left[name])
            while done < count and (
                found := await receiver.receive(count - done, within_s, more_s=0)
            ):
                await self._complete(receiver, found, account)
                done += len(found)
        finally:
            left[name] = left.get(name, 0) - done
            await receiver.close()
        return done


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all at the same time; the first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
