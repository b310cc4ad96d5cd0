"""What Service Bus's documentation leaves open, asked of a namespace with two queues made for it.

Each question is a function of the queues. Its answer is a value of JSON, or a RemoteError, whose
condition is then the answer too. A question begins with empty queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.commands.clock import now_ms
from bridge.model.properties import EntityKind
from bridge.remote.administration import RemoteAdministration
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Defer, Release
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.headers import SCHEDULED_ENQUEUE_TIME

LOCK_S: Final = 10
"""The lock duration of the queues."""

WAIT_S: Final = 5.0
DRAINED_S: Final = 1.0
DELAY_MS: Final = 4_000
PAGE_MESSAGES: Final = 300
PAGE: Final = 1_000


@dataclass(frozen=True)
class ProbeQueues:
    """The two queues, and the ways to them."""

    namespace: RemoteNamespace
    administration: RemoteAdministration
    plain: str
    with_sessions: str

    async def send(self, *bodies: str, session: str | None = None, queue: str = "") -> None:
        """Send messages to a queue, in one batch."""
        sender = await self.namespace.sender(queue or self.plain)
        try:
            await sender.send([made(body, session) for body in bodies])
        finally:
            await sender.close()

    async def received(
        self, *outcomes: Abandon | Complete | DeadLetter | Defer | Release, queue: str = ""
    ) -> list[RemoteMessage]:
        """Receive a message for each outcome, settle it so, and return the messages."""
        receiver = await self.namespace.receiver(queue or self.plain)
        found = []
        try:
            for outcome in outcomes:
                delivery = await one(await receiver.receive(1, WAIT_S))
                found.append(delivery.message)
                await receiver.settle(delivery, outcome)
        finally:
            await receiver.close()
        return found

    async def peeked(self, queue: str = "", count: int = PAGE) -> list[RemoteMessage]:
        """Return the first page of a queue's messages."""
        management = await self.namespace.management(queue or self.plain)
        return await management.peek(1, count)

    async def set_status(self, status: str) -> None:
        """Change the status of the plain queue."""
        there = await self.administration.get(EntityKind.QUEUE.value, self.plain)
        changed = there.changed({"Status": status})
        await self.administration.update(EntityKind.QUEUE.value, changed, self.plain)

    async def drain(self) -> None:
        """Receive and delete all messages of the plain queue."""
        receiver = await self.namespace.receiver(self.plain, "receive-and-delete")
        try:
            while await receiver.receive(100, DRAINED_S):
                pass
        finally:
            await receiver.close()


def made(body: str, session: str | None = None, due_ms: int | None = None) -> RemoteMessage:
    """Return a message."""
    return RemoteMessage.of(
        data=body.encode(),
        properties=MessageProperties(message_id=body, group_id=session),
        annotations=None if due_ms is None else {SCHEDULED_ENQUEUE_TIME: due_ms},
    )


async def one(deliveries: Sequence[RemoteDelivery]) -> RemoteDelivery:
    """Return the one message that came; RemoteError if none came."""
    if not deliveries:
        raise RemoteError("busbridge:no-message", f"no message came within {WAIT_S:g} s")
    return deliveries[0]


def soon_ms() -> int:
    """Return a time shortly ahead."""
    return now_ms() + DELAY_MS


async def _peek_at(queues: ProbeQueues, status: str) -> Any:
    await queues.send("a")
    await queues.set_status(status)
    try:
        return len(await queues.peeked()) == 1
    finally:
        await queues.set_status("Active")


async def peek_send_disabled(queues: ProbeQueues) -> Any:
    """Is a peek answered on a queue that is SendDisabled?"""
    return await _peek_at(queues, "SendDisabled")


async def peek_receive_disabled(queues: ProbeQueues) -> Any:
    """Is a peek answered on a queue that is ReceiveDisabled?"""
    return await _peek_at(queues, "ReceiveDisabled")


async def peek_disabled(queues: ProbeQueues) -> Any:
    """Is a peek answered on a queue that is Disabled?"""
    return await _peek_at(queues, "Disabled")


async def send_disabled(queues: ProbeQueues) -> Any:
    """With which condition is a send to a SendDisabled queue refused?"""
    await queues.set_status("SendDisabled")
    try:
        await queues.send("a")
    finally:
        await queues.set_status("Active")
    return None


async def peek_count(queues: ProbeQueues) -> Any:
    """Which delivery count does a peek tell of a message that was abandoned once?"""
    await queues.send("a")
    await queues.received(Abandon())
    return int((await queues.peeked())[0].delivery_count)


async def released_count(queues: ProbeQueues) -> Any:
    """Which delivery count has a message that was released once, when it is received again?"""
    await queues.send("a")
    _, again = await queues.received(Release(), Complete())
    return int(again.delivery_count)


async def abandoned_count(queues: ProbeQueues) -> Any:
    """Which delivery count has a message that was abandoned once, when it is received again?"""
    await queues.send("a")
    _, again = await queues.received(Abandon(), Complete())
    return int(again.delivery_count)


async def lock_end_count(queues: ProbeQueues) -> Any:
    """Which delivery count has a message whose lock has ended, when it is received again?"""
    await queues.send("a")
    receiver = await queues.namespace.receiver(queues.plain)
    try:
        await one(await receiver.receive(1, WAIT_S))
        again = await one(await receiver.receive(1, LOCK_S + 3 * WAIT_S))
        await receiver.settle(again, Complete())
        return int(again.message.delivery_count)
    finally:
        await receiver.close()


async def _next_behind(queues: ProbeQueues, outcome: Abandon | Release) -> Any:
    await queues.send("a", "b")
    _, behind, _ = await queues.received(outcome, Complete(), Complete())
    return behind.message_id


async def order_behind_abandon(queues: ProbeQueues) -> Any:
    """a and b wait, a is received and abandoned: which one comes next?"""
    return await _next_behind(queues, Abandon())


async def order_behind_release(queues: ProbeQueues) -> Any:
    """a and b wait, a is received and released: which one comes next?"""
    return await _next_behind(queues, Release())


async def peek_locked(queues: ProbeQueues) -> Any:
    """Does a peek show a message that is locked?"""
    await queues.send("a")
    receiver = await queues.namespace.receiver(queues.plain)
    try:
        delivery = await one(await receiver.receive(1, WAIT_S))
        is_shown = bool(await queues.peeked())
        await receiver.settle(delivery, Complete())
        return is_shown
    finally:
        await receiver.close()


async def deferred(queues: ProbeQueues) -> Any:
    """Which state does a peek tell of a deferred message, and which count has it by its number?"""
    await queues.send("a")
    (first,) = await queues.received(Defer())
    shown = (await queues.peeked())[0]
    management = await queues.namespace.management(queues.plain)
    number = int(first.sequence_number or 0)
    by_number = await one(await management.receive_deferred([number]))
    assert by_number.lock_token is not None
    await management.settle_deferred([by_number.lock_token], Complete())
    return {"state": shown.state, "delivery_count": int(by_number.message.delivery_count)}


async def activated(queues: ProbeQueues) -> Any:
    """What does a scheduled message keep when it is enqueued: its number, its scheduled time?"""
    management = await queues.namespace.management(queues.plain)
    (number,) = await management.schedule([made("a", due_ms=soon_ms())])
    (message,) = await queues.received(Complete())
    return {
        "keeps_number": message.sequence_number == number,
        "has_scheduled_time": message.scheduled_enqueue_time_ms is not None,
        "number_when_sent": message.enqueued_sequence_number == number,
    }


async def cancel_activated(queues: ProbeQueues) -> Any:
    """With which condition is a cancel refused that comes after the message was enqueued?"""
    management = await queues.namespace.management(queues.plain)
    (number,) = await management.schedule([made("a", due_ms=soon_ms())])
    await queues.received(Complete())
    await management.cancel([number])


async def dead_number(queues: ProbeQueues) -> Any:
    """Does a message keep its number, and its count, in the dead-letter queue?"""
    await queues.send("a")
    (message,) = await queues.received(DeadLetter("probe", "a question"))
    (dead,) = await queues.received(Complete(), queue=f"{queues.plain}/$DeadLetterQueue")
    return {
        "keeps_number": dead.sequence_number == message.sequence_number,
        "delivery_count": int(dead.delivery_count),
        "reason": dead.dead_letter_reason,
    }


async def batch_of_sessions(queues: ProbeQueues) -> Any:
    """Is a batch taken that has messages of two sessions?"""
    sender = await queues.namespace.sender(queues.with_sessions)
    try:
        await sender.send([made("a", "one"), made("b", "two")])
    finally:
        await sender.close()
    return True


async def peek_across_sessions(queues: ProbeQueues) -> Any:
    """Is a peek across sessions in the order of sequence numbers?"""
    for at in range(8):
        await queues.send(f"m{at}", session=f"s{at % 3}", queue=queues.with_sessions)
    numbers = [int(each.sequence_number or 0) for each in await queues.peeked(queues.with_sessions)]
    return {"is_ordered": numbers == sorted(numbers), "messages": len(numbers)}


async def scheduled_session(queues: ProbeQueues) -> Any:
    """Is a session listed that has a scheduled message and no others?"""
    management = await queues.namespace.management(queues.with_sessions)
    due_ms = soon_ms() + 600_000
    (number,) = await management.schedule([made("a", "only-scheduled", due_ms)])
    try:
        return "only-scheduled" in await management.message_sessions()
    finally:
        await management.cancel([number])


async def sizes(queues: ProbeQueues) -> Any:
    """Which sizes does a link to a queue say that it takes, in bytes?"""
    sender = await queues.namespace.sender(queues.plain)
    try:
        return {"message": sender.max_message_size, "batch": sender.max_batch_size}
    finally:
        await sender.close()


async def peek_page(queues: ProbeQueues) -> Any:
    """How many of 300 messages does one peek give that asks for 1,000?"""
    await queues.send(*(f"m{at}" for at in range(PAGE_MESSAGES)))
    await asyncio.sleep(DRAINED_S)
    return len(await queues.peeked())


QUESTIONS: Final[tuple[Callable[[ProbeQueues], Awaitable[Any]], ...]] = (
    sizes,
    peek_send_disabled,
    peek_receive_disabled,
    peek_disabled,
    send_disabled,
    peek_count,
    abandoned_count,
    released_count,
    lock_end_count,
    order_behind_abandon,
    order_behind_release,
    peek_locked,
    deferred,
    activated,
    cancel_activated,
    dead_number,
    batch_of_sessions,
    peek_across_sessions,
    scheduled_session,
    peek_page,
)
"""The questions in order; the first line of each one's docstring is the question."""
