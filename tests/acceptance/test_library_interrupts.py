"""Calls of the library that are cancelled in the very turn in which their messages are given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bridge.client import ServiceBusMessage, ServiceBusReceiveMode
from bridge.client.aio import ServiceBusClient, ServiceBusReceiver

_LOCKED = {"LockDuration": "PT1M", "MaxDeliveryCount": 10}
MODES = list(ServiceBusReceiveMode)
ENTITIES = {f"plain-{mode.value}": _LOCKED for mode in MODES}
ENTITIES |= {f"session-{mode.value}": _LOCKED | {"RequiresSession": True} for mode in MODES}

SOON_S = 15.0
"""A fraction of the locks' duration."""


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
            await _cancelled_when_given(receiver, len(texts))
        async with client.get_queue_receiver(queue, session_id=session_id, **given) as receiver:
            found: list[str] = []
            while len(found) < len(texts):
                (message,) = await receiver.receive_messages(1)
                found.append(str(message))
                if mode is ServiceBusReceiveMode.PEEK_LOCK:
                    await receiver.complete_message(message)
            assert found == texts
            assert await receiver.receive_messages(1, max_wait_time=0.5) == []


async def _cancelled_when_given(receiver: ServiceBusReceiver, count: int) -> None:
    """Cancel a call between its answer and the turn in which its caller would go on."""
    loop = asyncio.get_running_loop()
    create = loop.create_future
    call = asyncio.ensure_future(receiver.receive_messages(count))
    cancelled: list[int] = []

    def cancel(answer: asyncio.Future[Any]) -> None:
        found = None if answer.cancelled() or answer.exception() else answer.result()
        if isinstance(found, list) and len(found) == count:
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
    assert cancelled == [count]
