"""What the holder of an entity's sessions tells a receiver, in this process or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from uuid import UUID

from bridge.engine.api import Received
from bridge.engine.settlement.showing import read_shown, show
from bridge.wire.basic import Table, long, text

EVENT = "session-event"
"""`do` of a question that is an event, and has no answer."""


@dataclass(frozen=True, slots=True)
class Given:
    """It holds a session from now on."""

    session_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The session is another receiver's."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Its lock, or its wait, has ended: at its instant, or because the holder is one no more."""

    has_moved: bool


@dataclass(frozen=True, slots=True)
class Message:
    """It has a message."""

    received: Received


Event = Given | Refused | Lost | Message


def encode_event(receiver: int, event: Event) -> Table:
    """Return an event as a question for another bridge."""
    table: Table = {"do": text(EVENT), "receiver": long(receiver)}
    match event:
        case Given(session_id, until_ms):
            table |= {"kind": text("given"), "session": text(session_id), "until": long(until_ms)}
        case Refused():
            table["kind"] = text("refused")
        case Lost(has_moved):
            table |= {"kind": text("lost"), "moved": long(int(has_moved))}
        case Message(received):
            table |= {"kind": text("message"), "content": ("x", show(received))}
            if received.lock_token is not None and received.locked_until_ms is not None:
                table["token"] = ("x", received.lock_token.bytes)
                table["until"] = long(received.locked_until_ms)
    return table


def decode_event(table: Table) -> tuple[int, Event]:
    """Return the receiver and the event.

    Raises:
        LookupError, ValueError, TypeError: it is none.
    """
    receiver = integer(table, "receiver")
    kind = string(table, "kind")
    if kind == "given":
        return receiver, Given(string(table, "session"), integer(table, "until"))
    if kind == "refused":
        return receiver, Refused()
    if kind == "lost":
        return receiver, Lost(has_moved=bool(integer(table, "moved")))
    token = UUID(bytes=content(table, "token")) if "token" in table else None
    until_ms = integer(table, "until") if token is not None else None
    shown = read_shown(content(table, "content"), token, until_ms, is_deferred=False)
    return receiver, Message(shown)


def string(table: Table, name: str) -> str:
    """Return a field's text."""
    return cast(bytes, table[name][1]).decode()


def integer(table: Table, name: str) -> int:
    """Return a field's number."""
    return cast(int, table[name][1])


def content(table: Table, name: str) -> bytes:
    """Return a field's bytes."""
    return cast(bytes, table[name][1])
