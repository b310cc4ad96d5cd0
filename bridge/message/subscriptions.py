"""The short id that marks a subscription's messages."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model.name import short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers
from bridge.wire.basic import Table
from bridge.wire.copies import Reader


def reader_of(entity: model.ReceiveEntity) -> Reader | None:
    """Return the reader of messages in a subscription's queues; `None` for a queue's."""
    if not isinstance(entity, model.Subscription):
        return None
    short = short_id(incarnation_of(entity))
    return Reader(short, entity.default_message_time_to_live_ms)


def target_of(entity: model.ReceiveEntity) -> Table:
    """Return the header that sends a message back to a topic for one subscription only."""
    if not isinstance(entity, model.Subscription):
        return {}
    return {headers.TARGET: ("x", short_id(incarnation_of(entity)))}
