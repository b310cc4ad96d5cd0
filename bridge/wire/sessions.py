"""What bridges, and clients on RabbitMQ, say to each other about the sessions of an entity.

Through the queue that a shard's owner consumes (`topology.names.sessions_queue`), by the header
`headers.KIND`:

    where             an ask: the owner answers with the name of its bridge (`reply.Done.content`)
    session-state     a stored state: session id, when it was set, and the state as body
    session-holder    the ownership token: it comes to each next owner at once

To a bridge's own queue, each a field table with `do`, `path` and `shard`:

    session-accept    bridge, receiver, deletes, [session]: this or the next; told by event
    session-credit    bridge, receiver, count: so many more messages
    session-drain     bridge, receiver: no more; answered with how many it was told of
    session-close     bridge, receiver, [unused]: the lock, or the wait, ends; no client has had it
    session-renew     session: answered with the new end
    session-check     session: refused unless somebody holds it
    session-state     session: answered with 1 and the state, or 0
    session-store     session, [state]: stored, or cleared
    session-list      after: answered with ids as JSON, of states changed after, or (-1) of all
    session-delete    session, count, before: answered with how many messages were deleted
    session-stand-by  a bridge is to own the shard, when its owner goes or there is none
    session-ping      (no path) answered while the bridge is there
    session-event     receiver, kind, ...: what an owner tells a receiver; not answered
"""

from __future__ import annotations

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
CLOSE = "session-close"
RENEW = "session-renew"
CHECK = "session-check"
GET_STATE = "session-state"
STORE = "session-store"
LIST = "session-list"
DELETE = "session-delete"
STAND_BY = "session-stand-by"
PING = "session-ping"
EVENT = "session-event"
"""`do` of what is asked or told."""

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


def state_properties(session_id: str, updated_ms: int) -> bytes:
    """Return the properties of a stored state."""
    table: Table = {
        headers.KIND: text(STATE),
        headers.SESSION_ID: text(session_id),
        headers.ENQUEUED_TIME: long(updated_ms),
    }
    return Properties(headers=table, delivery_mode=2).encode()


def token_properties() -> bytes:
    """Return the properties of an ownership token."""
    return Properties(headers={headers.KIND: text(TOKEN)}, delivery_mode=2).encode()


def encode_state(state: bytes | None) -> bytes:
    """Return the answer to who asks for a state."""
    return b"\x00" if state is None else b"\x01" + state


def decode_state(answer: bytes) -> bytes | None:
    """Return the state that an answer says."""
    return answer[1:] if answer[:1] == b"\x01" else None


def question(what: str, path: str, shard: int, fields: Table) -> Table:
    """Return what is asked of, or told to, the owner of a shard."""
    table: Table = {"do": text(what), "path": text(path)}
    if shard:
        table["shard"] = long(shard)
    table.update(fields)
    return table


def shard_in(table: Table) -> int:
    """Return the shard that a question is about."""
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
