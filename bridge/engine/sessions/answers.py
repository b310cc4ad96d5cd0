"""The answers of a shard's owner to requests of this process or another bridge."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256

from bridge.background.slices import in_slices
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.sessions.deletion import delete
from bridge.engine.sessions.owner import SessionOwner
from bridge.model.availability import check_held
from bridge.model.errors import ServerBusy, SessionLockLost
from bridge.model.session_id import fold
from bridge.wire import sessions as wire
from bridge.wire.basic import Table
from bridge.wire.commits import encode_states
from bridge.wire.reply import Done
from bridge.wire.sessions import content, integer, string

_PINS = (wire.PIN, wire.KEEP_PINNED, wire.UNPIN, wire.SET_PINNED)


async def answer(owner: SessionOwner, what: str, question: Table) -> Done:
    """Carry out a request about a session, or list the sessions.

    Raises:
        SessionLockLost: no receiver holds the session, or this process does not own it.
        EntityConflict: a migration's run does not hold the entity.
        ServerBusy, OperationTimeout: RabbitMQ refuses, or does not answer now.
    """
    try:
        return await _answer(owner, what, question)
    except BrokerError as error:
        raise ServerBusy(texts.busy(error)) from error


async def _answer(owner: SessionOwner, what: str, question: Table) -> Done:
    messages, stored = owner.messages, owner.stored
    if what == wire.LIST:
        await owner.catch_up()
        after_ms = integer(question, "after")
        machine = messages.machine
        ids = {fold(each): machine.spelling(each) or each for each in stored.states.ids(after_ms)}
        if after_ms < 0:
            ids |= {fold(each): each for each in machine.ids}
        return Done(content=json.dumps(sorted(ids.values())).encode())
    if what == wire.DIGESTS:
        return Done(content=wire.encode_digests(await _digests(owner)))
    session_id = string(question, "session")
    if what in _PINS:
        return await _pinned(owner, what, session_id, question)
    if what == wire.IMPORT_STATE:
        run = string(question, "run")
        await owner.pinned.free(session_id)
        await stored.store(session_id, _state_in(question), lambda: check_held(messages.queue, run))
        return Done()
    if what == wire.RENEW:
        return Done((messages.renew(session_id),))
    if what == wire.DELETE:
        await owner.catch_up()
        count, before_ms = integer(question, "count"), integer(question, "before")
        return Done((await delete(messages, session_id, count, before_ms),))
    if what in (wire.GET_STATE, wire.STORE):
        await owner.pinned.free(session_id, of_kept=what == wire.GET_STATE)
    messages.check(session_id)
    if what == wire.GET_STATE:
        return Done(content=wire.encode_state(stored.states.value_of(session_id)))
    if what == wire.STORE:
        check = partial(owner.pinned.check_free, session_id)
        await stored.store(session_id, _state_in(question), check)
    return Done()


async def _pinned(owner: SessionOwner, what: str, session_id: str, question: Table) -> Done:
    """Carry out a request about a state that a transaction gives a session."""
    pinned, transaction = owner.pinned, content(question, "transaction")
    if what == wire.PIN:
        by = content(question, "bridge") if "bridge" in question else None
        outcome = await pinned.pin(session_id, transaction, by)
        return Done(content=encode_states([outcome]))
    if what == wire.KEEP_PINNED:
        await pinned.keep(session_id, transaction)
    elif what == wire.UNPIN:
        pinned.release(session_id, transaction)
    else:
        await pinned.carry_out(session_id, transaction, _state_in(question))
    return Done()


def _state_in(question: Table) -> bytes | None:
    return content(question, "state") if "state" in question else None


async def _digests(owner: SessionOwner) -> list[tuple[str, bytes]]:
    """Return the SHA-256 of each state; raises SessionLockLost when this is no owner any more."""
    states = owner.stored.states
    digests = (
        (session_id, sha256(state).digest())
        for session_id in states.ids()
        if (state := states.value_of(session_id)) is not None
    )
    was_ready = owner.is_ready
    found = await in_slices(digests)
    if not (was_ready and owner.is_ready):
        raise SessionLockLost(texts.SESSION_LOCK_LOST)
    return found
