"""Receivers in other bridges: the events sent to them, and their requests to owners here."""

from __future__ import annotations

import asyncio
from functools import partial

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.bridge_watch import BridgeWatch
from bridge.engine.peers import Peers
from bridge.engine.sessions.answers import answer
from bridge.engine.sessions.events import (
    Event,
    SessionGiven,
    SessionLost,
    SessionMessage,
    encode_event,
)
from bridge.engine.sessions.messages import SessionMessages
from bridge.engine.sessions.owner import SessionOwner
from bridge.engine.sessions.owners import Owners
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
from bridge.model.name import parse_path
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, text
from bridge.wire.reply import encode_done, encode_found
from bridge.wire.sessions import Key, integer, string

HEARD_S = 3.0
"""The longest wait for a bridge's answer after a session was given to a receiver there."""

AGAIN_S = 1.0
"""The wait before a bridge that could not be told of a lock's end is told again."""


class RemoteReceivers:
    """The owner's end of `location.Remote`.

    Attributes:
        owners: the owners of this process.
    """

    def __init__(self, peers: Peers, watch: BridgeWatch) -> None:
        self._peers = peers
        watch.on_gone.append(self._close_all_of)
        self._told: dict[Key, int] = {}
        self._asking: Key | None = None
        self._checks = Tasks()
        self._is_closed = False
        self.owners: Owners

    def __repr__(self) -> str:
        return f"RemoteReceivers({len(self._told)} told)"

    def tell(self, key: Key, event: Event) -> None:
        """Send an event to a receiver's bridge; if that fails, close all receivers there."""
        if isinstance(event, SessionMessage):
            self._told[key] = self._told.get(key, 0) + 1
        elif not isinstance(event, SessionGiven):
            self._told.pop(key, None)
        told = partial(self._on_told, key, event)
        try:
            self._peers.post(key[0], encode_event(key[1], event), told)
        except (BrokerError, ServiceBusError) as error:
            told(BrokerError(text=str(error)))
        if isinstance(event, SessionGiven) and key != self._asking:
            self._checks.start(self._see_heard(key))

    async def carry_out(self, what: str, question: Table) -> bytes:
        """Carry out another bridge's request; return the reply.

        Raises:
            ServiceBusError: the answer is this error.
        """
        shard = parse_path(string(question, "path")).key, wire.shard_in(question)
        owner = self.owners.ready(shard)
        key = wire.receiver_in(question)
        if key is not None:
            return self._of_receiver(what, owner, key, question)
        if owner is None:
            if what == wire.LIST:
                raise ServerBusy(texts.SERVER_BUSY)
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        done = await answer(owner, what, question)
        return encode_found(done.content) if done.content else encode_done(done.numbers)

    def _of_receiver(
        self, what: str, owner: SessionOwner | None, key: Key, question: Table
    ) -> bytes:
        if owner is None:
            self.tell(key, SessionLost(has_moved=True))
            return encode_done((0,))
        if what == wire.ACCEPT:
            session_id = string(question, "session") if "session" in question else None
            self._asking = key  # its bridge is there: it has just asked
            owner.messages.accept(key, session_id, deletes=integer(question, "deletes"))
            self._asking = None
        elif what == wire.CREDIT:
            owner.messages.add_credit(key, integer(question, "count"))
        elif what == wire.TAKEN:
            error = string(question, "error") if "error" in question else ""
            owner.messages.taken(key, integer(question, "number"), error)
        elif what == wire.DRAIN:
            owner.messages.drain(key)
        elif what != wire.CLOSE:
            raise LookupError(what)
        else:
            unused = "unused" in question and bool(integer(question, "unused"))
            owner.messages.close(key, unused=unused)
            self._told.pop(key, None)
        return encode_done((self._told.get(key, 0),))

    def close(self) -> None:
        """Stop the checks of bridges."""
        self._is_closed = True
        self._checks.cancel()

    async def _see_heard(self, key: Key) -> None:
        """Give a session to the next receiver when its bridge does not answer in `HEARD_S`."""
        try:
            async with asyncio.timeout(HEARD_S):
                await self._peers.ask(key[0], {"do": text(wire.PING)})
        except TimeoutError:
            for owner in self.owners.all:
                for each in _pass_over(owner.messages, key):
                    self.tell(each, SessionLost(has_moved=True))
        except (BrokerError, ServiceBusError):
            return  # `_on_told` handles the same error

    def _on_told(self, key: Key, event: Event, error: BrokerError | None) -> None:
        """Close all receivers of a bridge that an event did not reach."""
        if error is not None and not self._is_closed:
            is_gone = isinstance(error, Unroutable)
            asyncio.get_running_loop().call_soon(self._forget, key, event, is_gone)

    def _forget(self, unheard: Key, event: Event, is_gone: bool) -> None:
        ended = self._close_all_of(unheard[0])
        ends: dict[Key, Event] = dict.fromkeys(ended, SessionLost(has_moved=True))
        ends[unheard] = event if isinstance(event, SessionLost) else SessionLost(has_moved=True)
        self._told.pop(unheard, None)
        if not is_gone:  # an alarm, or a lost connection: the bridge runs, and is to be told
            asyncio.get_running_loop().call_later(AGAIN_S, self._tell_ends, ends)

    def _close_all_of(self, bridge: bytes) -> list[Key]:
        """Close all receivers of a bridge; return them."""
        ended = [key for key in self._told if key[0] == bridge]
        for owner in self.owners.all:
            gone = [key for key in owner.messages.receivers if key[0] == bridge]
            _close(owner.messages, gone, unused=False)
            ended += gone
        for key in ended:
            self._told.pop(key, None)
        return ended

    def _tell_ends(self, ends: dict[Key, Event]) -> None:
        for key, event in ends.items():
            if not any(key in owner.messages.receivers for owner in self.owners.all):
                self.tell(key, event)


def _pass_over(messages: SessionMessages, silent: Key) -> list[Key]:
    """Close a receiver whose bridge does not answer, and all that wait at that bridge.

    Other receivers of the bridge keep their sessions. Returns the closed receivers.
    """
    holders = set(messages.machine.holders)
    gone = [each for each in messages.receivers if each[0] == silent[0] and each not in holders]
    if silent in holders:
        gone.append(silent)
    _close(messages, gone, unused=True)
    return gone


def _close(messages: SessionMessages, receivers: list[Key], *, unused: bool) -> None:
    for key in receivers:
        messages.close(key, unused=unused)
