"""Calls of the library that are cancelled in the very turn in which their messages are given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from bridge.client import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from bridge.client.aio import ServiceBusClient
from bridge.client.exceptions import MessageNotFoundError
from bridge.message.received import Received
from tests.acceptance.lanes import LANES, lane_of
from tests.acceptance.sdk import receive
from tests.fixtures.waiting import eventually

_LOCKED = {"LockDuration": "PT5M", "MaxDeliveryCount": 10}
MODES = list(ServiceBusReceiveMode)
ENTITIES = {f"plain-{mode.value}": _LOCKED for mode in MODES}
ENTITIES |= {f"session-{mode.value}": _LOCKED | {"RequiresSession": True} for mode in MODES}
ENTITIES |= {f"again-{mode.value}": _LOCKED for mode in MODES}
ENTITIES |= {
    f"{kind}-deferred-{mode.value}": _LOCKED | {"RequiresSession": kind == "session"}
    for kind in ("plain", "session")
    for mode in MODES
}
ENTITIES |= {
    f"{kind}-gone-{lane}": _LOCKED | {"RequiresSession": kind == "session"}
    for kind in ("plain", "session")
    for lane in LANES[1:]
}

SOON_S = 120.0
"""A fraction of the locks' duration."""

HEARD_S = 120.0
"""Less than the duration of a deferred message's lock, which is 5 minutes."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["plain", "session"])
async def test_what_is_given_to_a_cancelled_call_is_the_next_ones(
    kind: str, mode: ServiceBusReceiveMode, bridge: Any
) -> None:
    """It was received, and deleted maybe, but the application never had it."""
    queue, session_id = f"{kind}-{mode.value}", "s" if kind == "session" else None
    async with ServiceBusClient(bridge.amqp_url, retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            texts = ["one", "two"]
            await sender.send_messages([ServiceBusMessage(e, session_id=session_id) for e in texts])
        given: dict[str, Any] = {"receive_mode": mode, "max_wait_time": SOON_S}
        async with client.get_queue_receiver(queue, session_id=session_id, **given) as receiver:
            given_count = await _cancelled_when_given(receiver.receive_messages(len(texts)))
            assert given_count == len(texts)
        async with client.get_queue_receiver(queue, session_id=session_id, **given) as receiver:
            found: list[str] = []
            while len(found) < len(texts):
                (message,) = await receiver.receive_messages(1)
                found.append(str(message))
                if mode is ServiceBusReceiveMode.PEEK_LOCK:
                    await receiver.complete_message(message)
            assert found == texts
            assert await receiver.receive_messages(1, max_wait_time=0.5) == []


@pytest.mark.parametrize("mode", MODES)
async def test_calls_that_are_cancelled_one_after_the_other_keep_the_order(
    mode: ServiceBusReceiveMode, bridge: Any
) -> None:
    """Each gets some of what went back before, and gives these messages back before the rest."""
    queue = f"again-{mode.value}"
    texts = ["one", "two", "three", "four", "five", "six"]
    async with ServiceBusClient(bridge.amqp_url, retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(each) for each in texts])
        given: dict[str, Any] = {"receive_mode": mode, "max_wait_time": SOON_S}
        async with client.get_queue_receiver(queue, **given) as receiver:
            for count in (5, 3, 1, 2, 1):
                await _cancelled_when_given(receiver.receive_messages(count))
            found: list[str] = []
            while len(found) < len(texts):
                for message in await receiver.receive_messages(len(texts)):
                    found.append(str(message))
                    if mode is ServiceBusReceiveMode.PEEK_LOCK:
                        await receiver.complete_message(message)
            assert found == texts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["plain", "session"])
async def test_deferred_messages_that_a_cancelled_call_was_given_are_deferred_still(
    kind: str, mode: ServiceBusReceiveMode, bridge: Any
) -> None:
    """The next call receives them at once; when it receives and deletes them, they are gone."""
    queue, texts = f"{kind}-deferred-{mode.value}", ["one", "two"]
    session_id = "s" if kind == "session" else None
    async with ServiceBusClient(bridge.amqp_url, retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(e, session_id=session_id) for e in texts])
        numbers: list[int] = []
        given: dict[str, Any] = {"session_id": session_id, "max_wait_time": SOON_S}
        async with client.get_queue_receiver(queue, **given) as receiver:
            while len(numbers) < len(texts):
                for message in await receiver.receive_messages(2):
                    assert message.sequence_number is not None
                    numbers.append(message.sequence_number)
                    await receiver.defer_message(message)
        async with client.get_queue_receiver(queue, receive_mode=mode, **given) as receiver:
            await receiver.peek_messages(1)  # the session is accepted
            given_count = await _cancelled_when_given(receiver.receive_deferred_messages(numbers))
            assert given_count == len(texts)
            found: list[ServiceBusReceivedMessage] = []
            async with asyncio.timeout(HEARD_S):
                while not found:  # until the bridge has heard of the end
                    with contextlib.suppress(MessageNotFoundError):
                        found = await receiver.receive_deferred_messages(numbers)
            assert [str(each) for each in found] == texts
            if mode is ServiceBusReceiveMode.PEEK_LOCK:
                for message in found:
                    await receiver.complete_message(message)
            else:
                assert [each.lock_token for each in found] == [None, None]
            peeked: list[Any] = [None]
            async with asyncio.timeout(HEARD_S):
                while peeked:
                    peeked = await receiver.peek_messages(2, sequence_number=1)


@pytest.mark.parametrize("lane_name", LANES[1:])
@pytest.mark.parametrize("kind", ["plain", "session"])
def test_deferred_messages_that_are_received_and_deleted_are_gone(
    kind: str, lane_name: str, bridge: Any
) -> None:
    """Once, and behind the end of their receiver too."""
    queue, mode = f"{kind}-gone-{lane_name}", ServiceBusReceiveMode.RECEIVE_AND_DELETE
    session: dict[str, Any] = {"session_id": "s"} if kind == "session" else {}
    with lane_of(lane_name, bridge) as lane:
        lane.send(queue, "one", **session)
        with lane.client.get_queue_receiver(queue, **session) as receiver:
            (message,) = receive(receiver)
            receiver.defer_message(message)
        number = message.sequence_number
        with lane.client.get_queue_receiver(queue, receive_mode=mode, **session) as receiver:
            (found,) = receiver.receive_deferred_messages(number)
            assert (str(found), found.lock_token) == ("one", None)
            with pytest.raises(lane.errors.MessageNotFoundError):
                receiver.receive_deferred_messages(number)
    with (
        lane_of(lane_name, bridge) as lane,
        lane.client.get_queue_receiver(queue, **session) as receiver,
    ):
        eventually(lambda: not receiver.peek_messages(1, sequence_number=1))


async def _cancelled_when_given(calling: Coroutine[Any, Any, Any]) -> int:
    """Cancel a call between its answer and the turn in which its caller would go on.

    Returns:
        How many messages it was given.
    """
    loop = asyncio.get_running_loop()
    create = loop.create_future
    call = asyncio.ensure_future(calling)
    cancelled: list[int] = []

    def cancel(answer: asyncio.Future[Any]) -> None:
        found = None if answer.cancelled() or answer.exception() else answer.result()
        if isinstance(found, list) and found and isinstance(found[0], Received):
            cancelled.append(len(found))
            call.cancel()

    def created() -> asyncio.Future[Any]:
        answer = create()
        answer.add_done_callback(cancel)  # before the caller waits, so it is called first
        return answer

    loop.create_future = created  # type: ignore[method-assign]
    try:
        with pytest.raises(asyncio.CancelledError):
            await call
    finally:
        loop.create_future = create  # type: ignore[method-assign]
    (count,) = cancelled
    return count
