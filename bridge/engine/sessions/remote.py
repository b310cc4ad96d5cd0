"""Receivers in other processes: what they hear of sessions, and what they ask of holders here."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.peers import Peers
from bridge.engine.sessions import whereabouts
from bridge.engine.sessions.events import (
    Event,
    Given,
    Lost,
    Message,
    content,
    encode_event,
    integer,
    string,
)
from bridge.engine.sessions.holder import Holder
from bridge.engine.sessions.holders import Holders
from bridge.engine.sessions.messages import Key
from bridge.engine.sessions.whereabouts import Here
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
from bridge.model.name import parse_path
from bridge.wire.basic import Table
from bridge.wire.reply import encode_done, encode_found


class RemoteReceivers:
    """The other end of `There`.

    Attributes:
        holders: what holds sessions here.
        peers: tells other bridges.
    """

    def __init__(self) -> None:
        self._told: dict[Key, int] = {}
        self.holders: Holders
        self.peers: Peers

    def __repr__(self) -> str:
        return f"RemoteReceivers({len(self._told)} told)"

    def tell(self, key: Key, event: Event) -> None:
        """Have a receiver hear something."""
        if isinstance(event, Message):
            self._told[key] = self._told.get(key, 0) + 1
        elif not isinstance(event, Given):
            self._told.pop(key, None)
        told = partial(self._on_told, key[0])
        try:
            self.peers.post(key[0], encode_event(key[1], event), told)
        except (BrokerError, ServiceBusError) as error:
            told(BrokerError(text=str(error)))

    async def carry_out(self, what: str, question: Table) -> bytes:
        """Do what another bridge asks; return the reply.

        Raises:
            ServiceBusError: the answer.
        """
        holder = self.holders.ready(parse_path(string(question, "path")).key)
        if "receiver" in question:
            key = content(question, "bridge"), integer(question, "receiver")
            return self._of_receiver(what, holder, key, question)
        if holder is None:
            if what == whereabouts.LIST:
                raise ServerBusy(texts.SERVER_BUSY)
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        return await _of_entity(what, Here(holder), question)

    def _of_receiver(self, what: str, holder: Holder | None, key: Key, question: Table) -> bytes:
        if holder is None:
            self.tell(key, Lost(has_moved=True))
            return encode_done((0,))
        if what == whereabouts.ACCEPT:
            session_id = string(question, "session") if "session" in question else None
            holder.messages.accept(key, session_id, deletes=bool(integer(question, "deletes")))
        elif what == whereabouts.CREDIT:
            holder.messages.add_credit(key, integer(question, "count"))
        elif what == whereabouts.DRAIN:
            holder.messages.drain(key)
        else:
            holder.messages.close(key)
            self._told.pop(key, None)
        return encode_done((self._told.get(key, 0),))

    def _on_told(self, bridge: bytes, error: BrokerError | None) -> None:
        """A bridge that does not hear what its receivers have has them no more."""
        if error is not None:
            asyncio.get_running_loop().call_soon(self._forget, bridge)

    def _forget(self, bridge: bytes) -> None:
        for key in [key for key in self._told if key[0] == bridge]:
            del self._told[key]
        for holder in self.holders.all:
            holder.messages.forget_bridge(bridge)


async def _of_entity(what: str, here: Here, question: Table) -> bytes:
    if what == whereabouts.LIST:
        after_ms = integer(question, "after")
        found = await here.sessions(None if after_ms < 0 else after_ms)
        return encode_found(json.dumps(found).encode())
    session_id = string(question, "session")
    if what == whereabouts.RENEW:
        return encode_done((await here.renew(session_id),))
    if what == whereabouts.DELETE:
        count, before_ms = integer(question, "count"), integer(question, "before")
        return encode_done((await here.delete(session_id, count, before_ms),))
    if what == whereabouts.STATE:
        state = await here.state(session_id)
        return encode_found(b"\x00" if state is None else b"\x01" + state)
    if what == whereabouts.STORE:
        await here.store(session_id, content(question, "state") if "state" in question else None)
    else:
        await here.check(session_id)
    return encode_done(())
