"""The engine's counters since its start, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _total(meaning: str) -> Any:
    return field(default=0, metadata={"help": meaning})


@dataclass(slots=True)
class Counters:
    """Totals of messages; each field is one sample of /metrics, with its text as help."""

    sent: int = _total("Messages that senders sent and RabbitMQ confirmed.")
    scheduled: int = _total("Messages that schedule calls scheduled.")
    cancelled: int = _total("Scheduled messages that were cancelled.")
    moved: int = _total("Scheduled messages that were moved to another time.")
    delivered: int = _total("Messages handed to receivers, locked ones included.")
    received_and_deleted: int = _total("Messages handed to receivers that take them for good.")
    completed: int = _total("Messages completed.")
    abandoned: int = _total("Messages abandoned by their receivers.")
    dead_lettered: int = _total("Messages dead-lettered by their receivers.")
    deferred: int = _total("Messages deferred by their receivers.")
    released: int = _total("Messages given back uncounted.")
    renewed: int = _total("Locks renewed.")
    locks_expired: int = _total("Locks that expired.")
    expired: int = _total("Messages that the bridge found expired.")
    second_copies: int = _total("Second copies that were dropped.")
    forwarded: int = _total("Messages and dead letters forwarded to another entity.")
    unforwardable: int = _total("Messages dead-lettered because they could not be forwarded.")
    sent_back: int = _total("Messages without a number, sent back through the front door.")
