"""The events that the owner of a shard's sessions sends to receivers, in any process."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.engine.api import Received
from bridge.engine.settlement.showing import read_shown, show
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, long, text
from bridge.wire.sessions import content, integer, string


@dataclass(frozen=True, slots=True)
class SessionGiven:
    """The receiver holds a session from now on."""

    session_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The receiver gets no session: another one holds the session that it asked for."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The receiver's lock or wait has ended.

    Attributes:
        has_moved: the owner has changed, the entity is gone, or the receiver's bridge is lost; if
            `False`, the lock has expired.
    """

    has_moved: bool


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """A message is delivered to the receiver.

    Attributes:
        number: the number by which the receiver's bridge says that the client has the message; 0
            when nothing is to be said.
    """

    received: Received
    number: int = 0


Event = SessionGiven | SessionRefused | SessionLost | SessionMessage


def encode_event(receiver: int, event: Event) -> Table:
    """Return an event as a question for another bridge."""
    table: Table = {"do": text(wire.EVENT), "receiver": long(receiver)}
    match event:
        case SessionGiven(session_id, until_ms):
            table |= {
                "kind": text(wire.GIVEN),
                "session": text(session_id),
                "until": long(until_ms),
            }
        case SessionRefused():
            table["kind"] = text(wire.REFUSED)
        case SessionLost(has_moved):
            table |= {"kind": text(wire.LOST), "moved": long(int(has_moved))}
        case SessionMessage(received, number):
            table |= {"kind": text(wire.MESSAGE), "content": ("x", show(received))}
            if received.lock_token is not None and received.locked_until_ms is not None:
                table["token"] = ("x", received.lock_token.bytes)
                table["until"] = long(received.locked_until_ms)
            if number:
                table["number"] = long(number)
    return table


def decode_event(table: Table) -> tuple[int, Event]:
    """Return an event and its receiver's number from another bridge's question.

    Raises:
        LookupError, ValueError, TypeError: the table is no event.
    """
    receiver = integer(table, "receiver")
    kind = string(table, "kind")
    if kind == wire.GIVEN:
        return receiver, SessionGiven(string(table, "session"), integer(table, "until"))
    if kind == wire.REFUSED:
        return receiver, SessionRefused()
    if kind == wire.LOST:
        return receiver, SessionLost(has_moved=bool(integer(table, "moved")))
    token = UUID(bytes=content(table, "token")) if "token" in table else None
    until_ms = integer(table, "until") if token is not None else None
    shown = read_shown(content(table, "content"), token, until_ms, is_deferred=False)
    return receiver, SessionMessage(shown, integer(table, "number") if "number" in table else 0)
