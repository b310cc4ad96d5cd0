"""The asyncio half of the real Python client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from tests.acceptance.sdk import now, seconds

ENTITIES = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 10}
    for name in ("aio", "aio-locks", "aio-renewer", "aio-schedule", "aio-many")
} | {"aio-sessions": {"LockDuration": "PT5S", "RequiresSession": True}}

LOCK_S = 5


def client_of(bridge: Any) -> ServiceBusClient:
    """A client that does not retry."""
    return ServiceBusClient.from_connection_string(bridge.connection_string, retry_total=0)


async def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages."""
    messages: list[ServiceBusReceivedMessage] = []
    end = asyncio.get_running_loop().time() + 120
    while len(messages) < count and (left_s := end - asyncio.get_running_loop().time()) > 0:
        messages += await receiver.receive_messages(count - len(messages), max_wait_time=left_s)
    assert len(messages) == count
    return messages


async def expect_silence(receiver: ServiceBusReceiver) -> None:
    """There is nothing to receive."""
    assert await receiver.receive_messages(1, max_wait_time=1) == []


async def test_send_batch_receive_settle(bridge: Any) -> None:
    """Single and batched sends arrive in order; each settlement does what it says."""
    async with client_of(bridge) as client:
        async with client.get_queue_sender("aio") as sender:
            await sender.send_messages(ServiceBusMessage("0"))
            await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("3"))
            await sender.send_messages(batch)
        async with client.get_queue_receiver("aio") as receiver:
            messages = await receive(receiver, 4)
            assert [str(message) for message in messages] == ["0", "1", "2", "3"]
            assert [message.sequence_number for message in messages] == [1, 2, 3, 4]
            await receiver.complete_message(messages[0])
            await receiver.abandon_message(messages[1])
            await receiver.dead_letter_message(messages[2], reason="r", error_description="d")
            await receiver.complete_message(messages[3])
            (again,) = await receive(receiver)
            assert (str(again), again.delivery_count) == ("1", 1)
            await receiver.complete_message(again)
            await expect_silence(receiver)
        async with client.get_queue_receiver("aio", sub_queue="deadletter") as dead:
            (found,) = await receive(dead)
            assert (str(found), found.dead_letter_reason) == ("2", "r")
            await dead.complete_message(found)


async def test_locks(bridge: Any) -> None:
    """Renewing extends a lock; a lock that has ended is lost; closing releases nothing held."""
    async with client_of(bridge) as client:
        async with client.get_queue_sender("aio-locks") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("aio-locks") as receiver:
            (message,) = await receive(receiver)
            await asyncio.sleep(LOCK_S * 0.6)
            await receiver.renew_message_lock(message)
            await asyncio.sleep(LOCK_S * 0.6)
            await receiver.renew_message_lock(message)
            await asyncio.sleep(LOCK_S + 0.5)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)
        async with client.get_queue_receiver(
            "aio-locks", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            (again,) = await receive(receiver)
            assert again.delivery_count == 1


async def test_automatic_renewal(bridge: Any) -> None:
    """The renewer keeps a lock for as long as the work takes."""
    async with client_of(bridge) as client, AutoLockRenewer() as renewer:
        async with client.get_queue_sender("aio-renewer") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("aio-renewer") as receiver:
            (message,) = await receive(receiver)
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            await asyncio.sleep(LOCK_S * 1.6)
            await receiver.complete_message(message)


async def test_schedule_and_cancel(bridge: Any) -> None:
    """Scheduling, cancelling and the error for an unknown number."""
    async with client_of(bridge) as client, client.get_queue_sender("aio-schedule") as sender:
        due = now() + seconds(2)
        keep, drop = await sender.schedule_messages(
            [ServiceBusMessage("keep"), ServiceBusMessage("drop")], due
        )
        await sender.cancel_scheduled_messages(drop)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(987_654_321)
        async with client.get_queue_receiver("aio-schedule") as receiver:
            (message,) = await receive(receiver)
            assert str(message) == "keep"
            assert message.enqueued_time_utc >= due
            assert message.sequence_number > keep
            await receiver.complete_message(message)
            await expect_silence(receiver)


async def test_many_at_once(bridge: Any) -> None:
    """Concurrent senders and receivers of one client: everything arrives once."""
    async with client_of(bridge) as client:

        async def produce(name: int) -> None:
            async with client.get_queue_sender("aio-many") as sender:
                for i in range(20):
                    await sender.send_messages(ServiceBusMessage(f"{name} {i}"))

        seen: list[str] = []

        async def consume() -> None:
            async with client.get_queue_receiver("aio-many", max_wait_time=3) as receiver:
                async for message in receiver:
                    seen.append(str(message))
                    await receiver.complete_message(message)

        await asyncio.gather(*(produce(name) for name in range(4)), consume(), consume())
        assert sorted(seen) == sorted(f"{name} {i}" for name in range(4) for i in range(20))


async def test_refusals(bridge: Any) -> None:
    """A wrong key and an unknown queue are refused."""
    text = bridge.connection_string.replace("SAS_KEY_VALUE", "wrong")
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            async with client.get_queue_sender("aio") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
    async with client_of(bridge) as client:
        with pytest.raises(ServiceBusError):
            async with client.get_queue_receiver("no-such-queue") as receiver:
                await receiver.receive_messages(1, max_wait_time=1)


async def test_sessions(bridge: Any) -> None:
    """By id, the next one while others wait, with a renewer, a state and a list."""
    async with client_of(bridge) as client, AutoLockRenewer() as renewer:

        def session(session_id: Any, **options: Any) -> ServiceBusReceiver:
            return client.get_queue_receiver("aio-sessions", session_id=session_id, **options)

        with pytest.raises(OperationTimeoutError):
            async with session(NEXT_AVAILABLE_SESSION, max_wait_time=1):
                pass
        async with client.get_queue_sender("aio-sessions") as sender:
            await sender.send_messages(ServiceBusMessage("a", session_id="one"))
            await sender.send_messages(ServiceBusMessage("b", session_id="one"))
        next_one = session(NEXT_AVAILABLE_SESSION, max_wait_time=120, auto_lock_renewer=renewer)
        async with next_one as receiver:
            assert receiver.session.session_id == "one"
            with pytest.raises(SessionCannotBeLockedError):
                async with session("one"):
                    pass
            await receiver.session.set_state(b"mine")
            first, second = await receive(receiver, 2)
            await receiver.abandon_message(first)
            await asyncio.sleep(LOCK_S + 1)
            (again,) = await receive(receiver)
            assert (str(again), again.delivery_count) == ("a", 1)
            await receiver.complete_message(again)
            await receiver.complete_message(second)
            assert receiver.session.auto_renew_error is None
        async with session("one") as receiver:
            assert await receiver.session.get_state() == b"mine"
        listed = [each async for each in client.list_queue_sessions("aio-sessions")]
        assert listed == ["one"]
