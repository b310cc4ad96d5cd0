"""A scheduled time that no client can read is refused, by each way in."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.model.duration import TIME_MIN_MS
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message import BATCH_FORMAT
from bridge.wire.amqp10.performatives import Accepted, Attach, Rejected
from bridge.wire.amqp10.types import Described, Long, Symbol, Timestamp, Ulong
from tests.conformance.served import client, gateway, message, queue_of

UNREADABLE = [Timestamp(-(2**63)), Long(-(2**63)), Timestamp(TIME_MIN_MS - 1)]
OUT_OF_RANGE = "com.microsoft:argument-out-of-range"


def scheduled(at: Any) -> bytes:
    """Return a message with a scheduled time."""
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): at}
    return writing.encode(Described(Ulong(0x72), annotations)) + message(b"x")


@pytest.mark.parametrize("at", UNREADABLE, ids=str)
async def test_a_send(at: Any) -> None:
    """It is rejected by name, alone or in a batch; nothing is stored."""
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)
        batch = message(message(b"y")) + message(scheduled(at))
        for number in (
            peer.deliver(7, scheduled(at)),
            peer.deliver(7, batch, message_format=BATCH_FORMAT),
        ):
            outcome = await peer.outcome(number)
            assert isinstance(outcome, Rejected)
            assert outcome.error.condition == OUT_OF_RANGE
            assert "before the year 1" in outcome.error.description
        assert not queue_of(served).active
        assert not queue_of(served).scheduled


@pytest.mark.parametrize("at", UNREADABLE, ids=str)
async def test_a_request_to_schedule(at: Any) -> None:
    """It is refused by name; nothing of it is scheduled."""
    readable = {"message": scheduled(Timestamp(TIME_MIN_MS)), "message-id": "a"}
    body = {"messages": [readable, {"message": scheduled(at), "message-id": "b"}]}
    async with gateway() as (served, port), client(port) as peer:
        reply = await peer.manage("q", "com.microsoft:schedule-message", body)
        assert reply.application_properties["statusCode"] == 400
        assert reply.application_properties["errorCondition"] == OUT_OF_RANGE
        assert not queue_of(served).active
        assert not queue_of(served).scheduled


async def test_the_first_readable_time() -> None:
    """It is in the past, and means now."""
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        number = peer.deliver(7, scheduled(Timestamp(TIME_MIN_MS)))
        assert isinstance(await peer.outcome(number), Accepted)
        assert len(queue_of(served).active) + len(queue_of(served).scheduled) == 1
