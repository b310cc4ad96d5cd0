"""Messages about an entity's sessions, between bridges and from clients on RabbitMQ.

In the queue that a shard's owner consumes (`topology.names.sessions_queue`), by the header
`headers.KIND`:

    where             an ask: the owner answers with the name of its bridge (`reply.Done.content`)
    session-state     a stored state: session id, the time of the change, and the state as body
    session-holder    the ownership token: RabbitMQ delivers it to each next owner at once

In a bridge's own queue, each a field table with `do`, `path` and `shard`:

    session-accept    bridge, receiver, deletes, [session]: accept this session or the next one;
                      an event tells the result; `deletes` says when messages are settled
    session-credit    bridge, receiver, count: the receiver takes `count` more messages
    session-drain     bridge, receiver: the receiver takes no more messages; answered with the
                      number of messages that it was sent
    session-taken     bridge, receiver, number, [error]: the client has this message, which it
                      receives and deletes; or `error` says why no client can have it
    session-close     bridge, receiver, [unused]: the receiver's lock, or its wait, ends;
                      `unused`: no client has had the session
    session-renew     session: answered with the new end of the lock
    session-check     session: refused unless a receiver holds the session
    session-state     session: answered with 1 and the state, or 0
    session-store     session, [state]: store the state, or without one clear it
    session-pin       session, transaction, [bridge]: a transaction of a receiver that holds the
                      session is to give it a state; answered with that
                      (`wire.commits.encode_states`), without the state; `bridge` has the
                      transaction, and when it is gone, the pin ends
    session-keep      session, transaction: refused unless the receiver holds the session; from now
                      on nothing but the transaction's end unpins it
    session-unpin     session, transaction: the transaction is rolled back
    session-set       session, transaction, [state]: it is committed: set the state, or clear it
    session-import    session, run, [state]: the same for a migration's run, which holds the entity;
                      no receiver holds the session
    session-digests   run: answered with JSON, [session id, SHA-256 of its state as hex] of each
    session-list      after: answered with session ids as JSON, of states changed after this time,
                      or (-1) of all sessions
    session-delete    session, count, before: answered with the number of deleted messages
    session-stand-by  the bridge becomes the shard's owner when the owner leaves or there is none
    session-ping      (no path) answered while the bridge runs
    session-event     receiver, kind, ...: an owner's event for a receiver; not answered
"""

from __future__ import annotations

import json
from typing import cast

from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long, text, text_in

WHERE = "where"
STATE = "session-state"
TOKEN = "session-holder"
"""`headers.KIND` of an ask for the owner, of a state, and of the ownership token."""

ASK_HEADERS: Table = {headers.KIND: text(WHERE)}

ACCEPT = "session-accept"
CREDIT = "session-credit"
DRAIN = "session-drain"
TAKEN = "session-taken"
CLOSE = "session-close"
RENEW = "session-renew"
CHECK = "session-check"
GET_STATE = "session-state"
STORE = "session-store"
PIN = "session-pin"
KEEP_PINNED = "session-keep"
UNPIN = "session-unpin"
SET_PINNED = "session-set"
IMPORT_STATE = "session-import"
DIGESTS = "session-digests"
LIST = "session-list"
DELETE = "session-delete"
STAND_BY = "session-stand-by"
PING = "session-ping"
EVENT = "session-event"
"""`do` of what is asked or told."""

BY_TOKEN, WHEN_SENT, WHEN_TAKEN = 0, 1, 2
"""`deletes` of `session-accept`: messages are settled by token; as soon as they are sent to the
receiver's bridge (asked for by bridges of earlier versions only); or when that bridge says `TAKEN`.
"""

GIVEN = "given"
REFUSED = "refused"
LOST = "lost"
MESSAGE = "message"
"""`kind` of an event."""

Key = tuple[bytes, int]
"""A receiver: the bridge that has it, by name, and its number there."""


def session_id_in(table: Table) -> str | None:
    """Return the session id of a message with these headers, or `None`."""
    return text_in(table, headers.SESSION_ID)


def session_id_of(raw: bytes) -> str | None:
    """Return the session id of a message with these properties, or `None`."""
    return session_id_in(Properties.decode(raw).headers or {})


def state_properties(session_id: str, updated_ms: int, *, is_bare: bool = False) -> bytes:
    """Return the properties of a stored state; a bare one says that the session has none."""
    table: Table = {
        headers.KIND: text(STATE),
        headers.SESSION_ID: text(session_id),
        headers.ENQUEUED_TIME: long(updated_ms),
    }
    if is_bare:
        table[headers.NO_STATE] = ("t", True)
    return Properties(headers=table, delivery_mode=2).encode()


def token_properties() -> bytes:
    """Return the properties of an ownership token."""
    return Properties(headers={headers.KIND: text(TOKEN)}, delivery_mode=2).encode()


def encode_state(state: bytes | None) -> bytes:
    """Return the answer to a question for a state."""
    return b"\x00" if state is None else b"\x01" + state


def decode_state(answer: bytes) -> bytes | None:
    """Return the state in an answer, or `None` when no state is stored."""
    return answer[1:] if answer[:1] == b"\x01" else None


def encode_digests(found: list[tuple[str, bytes]]) -> bytes:
    """Return a shard's answer: its sessions, sorted, each with the SHA-256 of its state."""
    return json.dumps(sorted((each, digest.hex()) for each, digest in found)).encode()


def decode_digests(answer: bytes) -> list[tuple[str, bytes]]:
    """Return the sessions of a shard's answer, likewise."""
    return [(str(each), bytes.fromhex(digest)) for each, digest in json.loads(answer)]


def question(what: str, path: str, shard: int, fields: Table) -> Table:
    """Return a question, or a message without an answer, to the owner of a shard."""
    table: Table = {"do": text(what), "path": text(path)}
    if shard:
        table["shard"] = long(shard)
    table.update(fields)
    return table


def shard_in(table: Table) -> int:
    """Return the number of the shard that a question is about."""
    return integer(table, "shard") if "shard" in table else 0


def of_receiver(key: Key) -> Table:
    """Return the fields that name a receiver."""
    return {"bridge": ("x", key[0]), "receiver": long(key[1])}


def receiver_in(table: Table) -> Key | None:
    """Return the receiver that a question names, or `None`."""
    if "receiver" not in table:
        return None
    return content(table, "bridge"), integer(table, "receiver")


def string(table: Table, name: str) -> str:
    """Return a field's text; raises LookupError."""
    return cast(bytes, table[name][1]).decode()


def integer(table: Table, name: str) -> int:
    """Return a field's number; raises LookupError."""
    return cast(int, table[name][1])


def content(table: Table, name: str) -> bytes:
    """Return a field's bytes; raises LookupError."""
    return cast(bytes, table[name][1])
