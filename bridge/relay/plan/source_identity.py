"""The identity of each copy, as a busbridge is told it: its source's name, number and time there.

Two relays, or a relay that was renamed, and a command that moves messages, name one source alike:
of the copies of one message the target numbers one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from bridge.model.name import parse_path
from bridge.relay.plan.encoded_map import with_pairs
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.primitives import encode_long, encode_symbol, encode_timestamp
from bridge.wire.mapping.sections import MESSAGE_ANNOTATIONS
from bridge.wire.relay_source import SOURCE_LOWEST, SOURCE_NUMBER, SOURCE_TIME

_DIGEST_CHARACTERS = 32

_NUMBER, _TIME, _LOWEST = (
    encode_symbol(each.encode()) for each in (SOURCE_NUMBER, SOURCE_TIME, SOURCE_LOWEST)
)


def source_name(side_id: str, path: str) -> str:
    """Return the name of an entity, or of its sub-queue, at a namespace.

    It has no case, as the names of entities have none, and is shorter than the 400 characters that
    a busbridge takes: an id has 100 at most, a path 260.

    Args:
        side_id: the id of the source's side.
        path: the entity's path as Azure writes it.

    Raises:
        ArgumentError: the path is none.
    """
    found = parse_path(path)
    name = f"{side_id.lower()}/{found.key}"
    return f"{name}/{found.sub_queue.value}" if found.sub_queue.value else name


def derived_message_id(source: str, number: int, enqueued_ms: int) -> str:
    """Return a MessageId that is made of a message's identity: of a repeat it is the same.

    Args:
        source: see `source_name`.
        number, enqueued_ms: at the source.
    """
    text = f"{source}\n{number}\n{enqueued_ms}"
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def identified(message: RemoteMessage, number: int, enqueued_ms: int, lowest: int) -> RemoteMessage:
    """Return a message with what makes it the same one when it comes again.

    Args:
        number, enqueued_ms: its number and its enqueued time (UTC ms) at the source.
        lowest: the lowest number of its partition that may yet come.
    """
    pairs = (
        (_NUMBER, encode_long(number)),
        (_TIME, encode_timestamp(enqueued_ms)),
        (_LOWEST, encode_long(lowest)),
    )
    annotations = with_pairs(message.annotations, MESSAGE_ANNOTATIONS, pairs)
    return replace(message, annotations=annotations)


LOCK_CHARACTERS_MAX = 128
"""Of a SessionId (Service Bus quotas)."""


def lock_name(side_id: str, path: str) -> str:
    """Return the session of the control queue whose holder alone receives from a source in order.

    It is the source's name, or that cut short with a digest of the whole: two files, and two routes
    of other names, contend for one source by one lock.
    """
    name = source_name(side_id, path)
    if len(name) <= LOCK_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: LOCK_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}#{digest}"
