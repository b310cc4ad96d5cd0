"""Pinned locks, whichever bridge has them: another bridge is asked to pin and settle its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.api import Disposition, OnSettled
from bridge.engine.peers import Peers, Question
from bridge.engine.settlement.disposition_fields import disposition_of, outcome_of
from bridge.engine.settlement.locktable import INSTANCE_BYTES, Locked, ProcessLocks
from bridge.engine.transactions.pins import LockPin, Pins, prove
from bridge.machine.queue.locks import Lock
from bridge.model.errors import MessageLockLost, ServiceBusError
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table, text
from bridge.wire.commits import (
    INQUIRY_BYTES,
    MESSAGE_BYTES,
    OutcomeKind,
    decode_messages,
    encode_message,
)
from bridge.wire.reply import Done, encode_done, encode_found
from bridge.wire.sessions import content, integer, string

PIN: Final = "pin"
UNPIN: Final = "unpin"
KEEP: Final = "keep-pinned"
CARRY_OUT: Final = "carry-out"

log = logging.getLogger(__name__)


class PinsAnywhere:
    """Pins, proves, releases and settles locks of all bridges; answers other bridges' questions.

    Args:
        on_used: called with the entity of a lock that a client settles.
    """

    def __init__(
        self,
        peers: Peers,
        locks: ProcessLocks,
        pins: Pins,
        on_used: Callable[[EntityPath], None],
    ) -> None:
        self._peers = peers
        self._locks = locks
        self._pins = pins
        self._on_used = on_used
        self._proved: WeakKeyDictionary[Channel, set[bytes]] = WeakKeyDictionary()
        self._tasks = Tasks()
        peers.answer(PIN, self._on_pin)
        peers.answer(UNPIN, self._on_unpin)
        peers.answer(KEEP, self._on_keep)
        peers.answer(CARRY_OUT, self._on_carry_out)

    def pin_here(self, path: EntityPath, token: UUID) -> LockPin | None:
        """Pin a lock of this process; `None`: it is another bridge's."""
        if not self._locks.is_own(token):
            return None
        self._on_used(path)
        return self._pins.pin(path, token)

    async def pin(self, path: EntityPath, token: UUID) -> LockPin:
        """Pin a lock; see `TransactionVerbs.pin`."""
        if (pinned := self.pin_here(path, token)) is not None:
            return pinned
        self._on_used(path)
        by: Table = {"bridge": ("x", self._locks.instance)}
        answer = (await self._ask(token, _question(PIN, path, token) | by)).content
        (message,) = decode_messages(answer[:MESSAGE_BYTES])
        return LockPin(path, token, message, answer[MESSAGE_BYTES:])

    def release(self, pin: LockPin) -> None:
        """Let a lock go on; another bridge is told, which ends it late if it does not hear it."""
        if self._locks.is_own(pin.lock_token):
            self._pins.release(pin.lock_token)
        else:
            self._tasks.start(self._release(pin), "unpin")

    async def prove(self, pin: LockPin) -> None:
        """Return when a pinned lock is known to be nobody else's since its entity is transactional.

        RabbitMQ is asked once a channel and entity: what it takes back later, it gives to nobody
        who does not ask for it.

        Raises:
            MessageLockLost: it was lost.
            ServiceBusError: another bridge has it, and does not answer.
        """
        path, token = pin.path, pin.lock_token
        if not self._locks.is_own(token):
            await self._ask(token, _question(KEEP, path, token) | _source(pin))
            return
        channel = self._pins.channel_of(token)
        proved = self._proved.setdefault(channel, set())
        source = pin.message.source
        if source not in proved:
            await prove(channel)
            proved.add(source)

    def take(self, pin: LockPin) -> Lock[Locked] | None:
        """Take a lock of this process for its commit; `None`: it is another bridge's.

        Raises:
            MessageLockLost: it was lost.
        """
        if not self._locks.is_own(pin.lock_token):
            return None
        lock = self._pins.take(pin.lock_token)
        if lock is None:
            raise MessageLockLost(texts.LOCK_LOST)
        return lock

    def put_back(self, pin: LockPin, lock: Lock[Locked] | None) -> None:
        """Let a lock go on that was taken, with the time that it had left."""
        if lock is None:
            self.release(pin)
        else:
            self._pins.put_back(pin.lock_token, lock)

    def settle(self, lock: Lock[Locked], disposition: Disposition, done: OnSettled) -> None:
        """Carry out what was decided about a lock that was taken; see `Settling.carry_out`."""
        self._pins.carry_out(lock, disposition, done)

    async def carry_out(self, pin: LockPin, disposition: Disposition) -> bool:
        """Have another bridge carry out what was decided; return whether that was done.

        It was not if RabbitMQ has the message back: whoever gets it next carries it out.
        """
        kind, details = outcome_of(disposition)
        question = _question(CARRY_OUT, pin.path, pin.lock_token)
        question |= {"kind": ("l", int(kind)), "details": ("x", details)}
        try:
            return bool((await self._ask(pin.lock_token, question)).numbers)
        except MessageLockLost:
            return False

    async def close(self) -> None:
        """Stop telling other bridges."""
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _settle(self, lock: Lock[Locked], disposition: Disposition) -> bool:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def told(error: ServiceBusError | None) -> None:
            if not done.done():
                done.set_result(error is None)

        self._pins.carry_out(lock, disposition, told)
        return await done

    async def _release(self, pin: LockPin) -> None:
        try:
            await self._ask(pin.lock_token, _question(UNPIN, pin.path, pin.lock_token))
        except ServiceBusError as error:
            log.info("pin.unreleased entity=%s error=%s", pin.path, error)

    async def _ask(self, token: UUID, question: Table) -> Done:
        try:
            return await self._peers.ask(token.bytes[:INSTANCE_BYTES], question)
        except Unroutable as error:
            raise MessageLockLost(texts.LOCK_LOST) from error
        except BrokerError as error:
            raise MessageLockLost(f"{texts.LOCK_LOST} ({error})") from error

    # Other bridges' questions.

    async def _on_pin(self, question: Question) -> bytes:
        by = content(question.table, "bridge") if "bridge" in question.table else b""
        pin = self._pins.pin(*_lock_in(question), by)
        return encode_found(encode_message(pin.message) + pin.inquiry)

    async def _on_unpin(self, question: Question) -> bytes:
        self._pins.release(_lock_in(question)[1])
        return encode_done(())

    async def _on_keep(self, question: Question) -> bytes:
        path, token = _lock_in(question)
        (message,) = decode_messages(content(question.table, "message"))
        await self.prove(LockPin(path, token, message, bytes(INQUIRY_BYTES)))
        return encode_done(())

    async def _on_carry_out(self, question: Question) -> bytes:
        lock = self._pins.take(_lock_in(question)[1])
        if lock is None:
            raise MessageLockLost(texts.LOCK_LOST)
        kind = OutcomeKind(integer(question.table, "kind"))
        disposition = disposition_of(kind, content(question.table, "details"))
        return encode_done((1,) if await self._settle(lock, disposition) else ())


def _question(what: str, path: EntityPath, token: UUID) -> Table:
    return {"do": text(what), "path": text(str(path)), "token": ("x", token.bytes)}


def _source(pin: LockPin) -> Table:
    return {"message": ("x", encode_message(pin.message))}


def _lock_in(question: Question) -> tuple[EntityPath, UUID]:
    token = UUID(bytes=content(question.table, "token"))
    return parse_path(string(question.table, "path")), token
