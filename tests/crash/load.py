"""Clients that keep a queue busy and note what they did and saw; kills may happen at any time.

`python -m tests.crash.load ROLE CONNECTION_STRING AMQP_URL MARK [LANE]` prints the events of one
role, a line each, until its standard input ends; the mark is a part of all its identities. It is a
process of its own, because a client that is cut off leaves sockets behind.

Each actor is a thread with a client of its own, without retries: what fails is noted as unanswered
by not being noted as answered, and the actor connects again. The client is azure-servicebus, or the
library in one of its lanes.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import azure.servicebus
import azure.servicebus.exceptions
import pika
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)

from tests.acceptance.lanes import lane_of
from tests.crash.events import (
    Accepted,
    Cancelled,
    Cancelling,
    DeadLettering,
    Delivered,
    Event,
    Numbered,
    Returned,
    Scheduled,
    Sent,
    Settled,
    to_line,
)

LOCK_MS = 5_000
"""LockDuration of every queue of these tests."""

PAUSE_S = 0.2
"""Between a failure and the next connection."""

logging.getLogger("azure").setLevel(logging.CRITICAL)


def now_ms() -> int:
    """Return the machine's time."""
    return time.time_ns() // 1_000_000


class Printer:
    """Prints what the actors note."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Print an event; it is out before whatever comes next is begun."""
        line = to_line(event) + "\n"
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()


class Actor(threading.Thread):
    """One client at work until it is told to stop."""

    def __init__(self, name: str, connection_string: str, queue: str, notes: Printer) -> None:
        super().__init__(name=name, daemon=True)
        self.connection_string = connection_string
        self.queue = queue
        self.notes = notes
        self.chance = random.Random(name)
        self.ending = threading.Event()
        self.faults: list[str] = []
        self.lane = "azure"
        self.amqp_url = ""
        self.words: Any = azure.servicebus
        self.errors: Any = azure.servicebus.exceptions
        self._count = 0

    def run(self) -> None:
        """Connect, work, and connect again after each failure."""
        while not self.ending.is_set():
            try:
                place = SimpleNamespace(
                    connection_string=self.connection_string, amqp_url=self.amqp_url
                )
                with lane_of(self.lane, place) as lane:
                    self.words, self.errors = lane.words, lane.errors
                    self.work(lane.client)
            except Exception:
                self.ending.wait(PAUSE_S)

    @abstractmethod
    def work(self, client: ServiceBusClient) -> None:
        """Work until something fails or the end has come."""

    def identities(self, count: int) -> tuple[str, ...]:
        """Return identities that nothing else has."""
        self._count += count
        return tuple(f"{self.name}-{self._count - i}" for i in range(count))


class Sender(Actor):
    """Sends single messages and batches, with a pause of up to `pause_s` after each."""

    def __init__(
        self, name: str, text: str, queue: str, notes: Printer, *, pause_s: float = 0.02
    ) -> None:
        super().__init__(name, text, queue, notes)
        self.pause_s = pause_s

    def work(self, client: ServiceBusClient) -> None:
        """Send until something fails."""
        with client.get_queue_sender(self.queue) as sender:
            while not self.ending.wait(self.chance.uniform(0, self.pause_s)):
                ids = self.identities(self.chance.choice([1, 1, 1, 2, 5]))
                messages = [self.message(identity) for identity in ids]
                self.notes.add(Sent(ids, now_ms()))
                sender.send_messages(messages if len(ids) > 1 else messages[0])
                self.notes.add(Accepted(ids, now_ms()))

    def message(self, identity: str) -> Any:
        """Return a message to be sent."""
        return self.words.ServiceBusMessage(identity)


class ShortLived(Sender):
    """Sends what expires after a second or two, or in an hour."""

    def message(self, identity: str) -> Any:
        """Return a message with a time to live."""
        ttl = timedelta(seconds=self.chance.choice([1, 2, 3600]))
        return self.words.ServiceBusMessage(identity, time_to_live=ttl)


class Repeater(Actor):
    """Sends a batch until it is told that it was accepted, half of them once more."""

    def __init__(self, name: str, text: str, queue: str, notes: Printer) -> None:
        super().__init__(name, text, queue, notes)
        self._unanswered: tuple[str, ...] = ()

    def work(self, client: ServiceBusClient) -> None:
        """Send until something fails; what was not answered then is sent again."""
        with client.get_queue_sender(self.queue) as sender:
            while not self.ending.wait(self.chance.uniform(0, 0.02)):
                if not self._unanswered:
                    self._unanswered = self.identities(self.chance.choice([1, 1, 2, 5]))
                    self.notes.add(Sent(self._unanswered, now_ms()))
                ids = self._unanswered
                sender.send_messages([ServiceBusMessage(each, message_id=each) for each in ids])
                self.notes.add(Accepted(ids, now_ms()))
                self._unanswered = ()
                if self.chance.random() < 0.5:
                    sender.send_messages([ServiceBusMessage(each, message_id=each) for each in ids])


class Scheduler(Actor):
    """Schedules near and a little farther ahead, by call and by property; cancels some."""

    def work(self, client: ServiceBusClient) -> None:
        """Schedule until something fails."""
        with client.get_queue_sender(self.queue) as sender:
            while not self.ending.wait(self.chance.uniform(0, 0.1)):
                ids = self.identities(self.chance.choice([1, 3]))
                ahead_ms = self.chance.choice([500, 1500, 3000, 20_000])
                due = datetime.now(UTC) + timedelta(milliseconds=ahead_ms)
                due = due.replace(microsecond=due.microsecond // 1000 * 1000)
                due_ms = round(due.timestamp() * 1000)
                messages = [self.words.ServiceBusMessage(identity) for identity in ids]
                self.notes.add(Scheduled(ids, due_ms, now_ms()))
                if self.chance.random() < 0.3:
                    for message in messages:
                        message.scheduled_enqueue_time_utc = due
                    sender.send_messages(messages)
                    self.notes.add(Accepted(ids, now_ms()))
                    continue
                numbers = sender.schedule_messages(messages, due)
                self.notes.add(Numbered(ids, tuple(numbers), now_ms()))
                if self.chance.random() < 0.4:
                    self.notes.add(Cancelling(ids, now_ms()))
                    try:
                        sender.cancel_scheduled_messages(numbers)
                    except self.errors.MessageNotFoundError:
                        continue
                    self.notes.add(Cancelled(ids, now_ms()))


class TopicScheduler(Actor):
    """Sends messages with a time of their own; a topic's numbers are no subscription's."""

    def work(self, client: ServiceBusClient) -> None:
        """Send until something fails."""
        with client.get_queue_sender(self.queue) as sender:
            while not self.ending.wait(self.chance.uniform(0, 0.2)):
                ids = self.identities(1)
                ahead = timedelta(milliseconds=self.chance.choice([500, 1500, 3000]))
                due = datetime.now(UTC) + ahead
                due = due.replace(microsecond=due.microsecond // 1000 * 1000)
                message = ServiceBusMessage(ids[0], scheduled_enqueue_time_utc=due)
                due_ms = round(due.timestamp() * 1000)
                self.notes.add(Scheduled(ids, due_ms, now_ms(), takes_number=False))
                sender.send_messages(message)
                self.notes.add(Accepted(ids, now_ms()))


class NativePublisher(Actor):
    """Publishes with pika, through the front door and past it."""

    def __init__(
        self, name: str, connection_string: str, queue: str, notes: Printer, amqp_url: str
    ) -> None:
        super().__init__(name, connection_string, queue, notes)
        self.amqp_url = amqp_url

    def work(self, client: ServiceBusClient) -> None:
        """Publish until something fails; `expiration` is short for some."""
        login, _, address = self.amqp_url.rpartition("@")
        hosts, _, vhost = address.partition("/")
        url = f"{login}@{self.chance.choice(hosts.split(','))}/{vhost}"
        connection = pika.BlockingConnection(pika.URLParameters(url))
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self.ending.wait(self.chance.uniform(0, 0.2)):
                (identity,) = ids = self.identities(1)
                # What expires in the queue without having come through the door has no number.
                where, expiration = self.chance.choice(
                    [
                        ((self.queue, ""), None),
                        ((self.queue, ""), "1"),
                        ((self.queue, ""), "300"),
                        (("", self.queue), None),
                    ]
                )
                properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
                self.notes.add(Sent(ids, now_ms(), may_double=True))
                channel.basic_publish(*where, identity.encode(), properties, mandatory=True)
                self.notes.add(Accepted(ids, now_ms()))
        finally:
            if connection.is_open:
                connection.close()


class Receiver(Actor):
    """Receives and settles; most messages are completed.

    Attributes:
        completes: the share that is completed; the rest is abandoned, with and without changes,
            dead-lettered, or left to its lock.
    """

    completes = 0.9
    ways: Sequence[str] = ("abandon", "change", "dead-letter", "leave")

    def work(self, client: ServiceBusClient) -> None:
        """Receive until something fails."""
        with client.get_queue_receiver(self.queue) as receiver:
            while not self.ending.is_set():
                for message in receiver.receive_messages(10, max_wait_time=0.5):
                    self.settle(receiver, message)

    def settle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        """Note a delivery and settle it in one way or another."""
        delivered = delivery(message)
        self.notes.add(delivered)
        fate = self.chance.random()
        if fate < self.completes:
            receiver.complete_message(message)
            self.notes.add(Settled(delivered.id, delivered.number, now_ms()))
            return
        way = self.chance.choice(self.ways)
        if way == "leave":
            return
        at_ms = now_ms()
        if way == "dead-letter":
            self.notes.add(DeadLettering(delivered.id, at_ms))
            receiver.dead_letter_message(message, reason="load")
            self.notes.add(Settled(delivered.id, delivered.number, now_ms(), is_dead_lettered=True))
            return
        self.notes.add(Returned(delivered.id, at_ms, is_changed=way == "change"))
        if way == "abandon":
            receiver.abandon_message(message)
        else:
            abandon_changed(receiver, message)


class PoorReceiver(Receiver):
    """Completes little: its queue sees locks end, changes, dead letters and exhausted counts."""

    completes = 0.3


class LibraryReceiver(Receiver):
    """Does what the library has a call for; its locks end with its client."""

    ways = ("abandon", "dead-letter", "leave")

    def __init__(self, name: str, text: str, queue: str, notes: Printer) -> None:
        super().__init__(name, text, queue, notes)
        self._held: dict[str, int] = {}

    def work(self, client: ServiceBusClient) -> None:
        """Receive until something fails; what is held then goes back."""
        self._held.clear()
        try:
            super().work(client)
        finally:
            at_ms = now_ms()
            for identity, until_ms in self._held.items():
                if until_ms > at_ms:
                    self.notes.add(Returned(identity, at_ms))

    def settle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        """Note what is held meanwhile, and what stays so."""
        seen = delivery(message)
        self._held[seen.id] = seen.locked_until_ms
        super().settle(receiver, message)
        if message.lock_token is None:
            self._held.pop(seen.id, None)


class ExpiryWatch(LibraryReceiver):
    """Completes little, and gets nothing whose time is over."""

    completes = 0.3

    def settle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        """Look at its time, and settle it in one way or another."""
        late_ms = delivery(message).locked_ms - _utc_ms(message.expires_at_utc)
        if late_ms > 0:
            self.faults.append(f"{message} came {late_ms} ms after its time was over")
        super().settle(receiver, message)


class Peeker(Actor):
    """Peeks page after page, at full speed, from the first message on.

    Attributes:
        pages: how many had messages.
    """

    pages = 0

    def work(self, client: ServiceBusClient) -> None:
        """Peek until something fails."""
        with client.get_queue_receiver(self.queue) as receiver:
            start = 1
            while not self.ending.is_set():
                page = receiver.peek_messages(50, sequence_number=start)
                numbers = [message.sequence_number or 0 for message in page]
                if any(number < start for number in numbers) or numbers != sorted(set(numbers)):
                    self.faults.append(f"a page from {start} on has {numbers}")
                self.pages += bool(page)
                start = numbers[-1] + 1 if page else 1

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; it must have seen something."""
        super().join(timeout)
        if not self.pages:
            self.faults.append("no peek has shown anything")


class Latecomer(Actor):
    """Abandons messages with changes when their time is over, now and then one that has failed."""

    def work(self, client: ServiceBusClient) -> None:
        """Send and be late until something fails."""
        with (
            client.get_queue_sender(self.queue) as sender,
            client.get_queue_receiver(self.queue) as receiver,
        ):
            while not self.ending.is_set():
                seconds = self.chance.choice([1, 3600])
                ids = self.identities(2)
                messages = [ServiceBusMessage(identity) for identity in ids]
                for message in messages:
                    message.time_to_live = timedelta(seconds=seconds)
                self.notes.add(Sent(ids, now_ms()))
                sender.send_messages(messages)
                self.notes.add(Accepted(ids, now_ms()))
                for message in receiver.receive_messages(2, max_wait_time=1):
                    delivered = delivery(message)
                    self.notes.add(delivered)
                    if seconds == 1:
                        self.ending.wait(1.1)
                    is_changed = delivered.count == 0
                    self.notes.add(Returned(delivered.id, now_ms(), is_changed=is_changed))
                    if is_changed:
                        abandon_changed(receiver, message)
                    else:
                        receiver.abandon_message(message)


class Deleter(Actor):
    """Receives and deletes; what a kill loses on its way is lost."""

    def work(self, client: ServiceBusClient) -> None:
        """Receive until something fails."""
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with (
            client.get_queue_sender(self.queue) as sender,
            client.get_queue_receiver(self.queue, receive_mode=mode) as receiver,
        ):
            while not self.ending.is_set():
                sender.send_messages(ServiceBusMessage("x"))
                receiver.receive_messages(5, max_wait_time=1)


class Releaser(Actor):
    """Gives back what it gets, uncounted."""

    def work(self, client: ServiceBusClient) -> None:
        """Receive and release until something fails."""
        with client.get_queue_receiver(self.queue) as receiver:
            while not self.ending.wait(0.2):
                for message in receiver.receive_messages(2, max_wait_time=1):
                    delivered = delivery(message)
                    self.notes.add(delivered)
                    self.notes.add(Returned(delivered.id, now_ms()))
                    receiver._handler.settle_messages(
                        message._delivery_id, message._delivery_tag, "released"
                    )


def abandon_changed(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    """Abandon with a changed property, for which this client has no parameter of its own."""
    receiver._handler.settle_messages(
        message._delivery_id,
        message._delivery_tag,
        "modified",
        delivery_failed=True,
        undeliverable_here=False,
        message_annotations={"changed": str(now_ms())},
        await_outcome=True,
        outcome_timeout=10,
    )
    message._settled = True


def delivery(message: ServiceBusReceivedMessage, *, is_dead: bool = False) -> Delivered:
    """Return what a receiver sees of a message."""
    locked_until_ms = _utc_ms(message.locked_until_utc)
    return Delivered(
        id=b"".join(message.body).decode(),
        number=message.sequence_number or 0,
        enqueued_ms=_utc_ms(message.enqueued_time_utc),
        count=message.delivery_count or 0,
        locked_ms=locked_until_ms - LOCK_MS,
        locked_until_ms=locked_until_ms,
        at_ms=now_ms(),
        is_dead=is_dead,
    )


def _utc_ms(instant: datetime | None) -> int:
    return round(instant.timestamp() * 1000) if instant is not None else 0


def actors_of(role: str, text: str, amqp_url: str, mark: str) -> list[Actor]:
    """Return the actors of a role: `send`, `receive`, `fill`, `peek`, `repeat`, `unique`,
    `side`, `unwatched`, `topic`, `library`, `library-side`, `bursts-QUEUE`; or a path.

    The path is that of a subscription, which is received from.
    """
    notes = Printer()
    match role:
        case "send":
            return [
                *(Sender(f"sender{mark}{i}", text, "load", notes) for i in range(4)),
                Scheduler(f"scheduler{mark}", text, "load", notes),
            ]
        case "receive":
            return [Receiver(f"receiver{mark}{i}", text, "load", notes) for i in range(4)]
        case "peek":
            return [Peeker(f"peeker{mark}", text, "load", notes)]
        case "fill":
            return [
                Sender(f"filler{mark}{i}", text, "deleted", notes, pause_s=0.1) for i in range(3)
            ]
        case "repeat":
            return [Repeater(f"repeater{mark}{i}", text, "unique", notes) for i in range(4)]
        case "unique":
            return [Receiver(f"receiver{mark}{i}", text, "unique", notes) for i in range(2)]
        case "side":
            return [
                Sender(f"side-sender{mark}", text, "side", notes, pause_s=0.2),
                PoorReceiver(f"side-receiver{mark}", text, "side", notes),
                Latecomer(f"latecomer{mark}", text, "side", notes),
                Releaser(f"releaser{mark}", text, "side", notes),
                NativePublisher(f"native{mark}", text, "side", notes, amqp_url),
            ]
        case "unwatched":
            return [
                Deleter("deleter", text, "deleted", notes),
                Latecomer("latecomer", text, "dropped", notes),
            ]
        case "library":
            return [
                *(Sender(f"sender{mark}{i}", text, "load", notes) for i in range(2)),
                Scheduler(f"scheduler{mark}", text, "load", notes),
                *(LibraryReceiver(f"receiver{mark}{i}", text, "load", notes) for i in range(2)),
            ]
        case "library-side":
            return [
                ShortLived(f"short{mark}", text, "side", notes, pause_s=0.2),
                ExpiryWatch(f"watch{mark}", text, "side", notes),
            ]
        case "topic":
            return [
                *(Sender(f"sender{mark}{i}", text, "topic", notes) for i in range(2)),
                TopicScheduler(f"scheduler{mark}", text, "topic", notes),
            ]
        case _ if role.startswith("bursts-"):
            from tests.crash.bursts import Bursts  # which is an actor of this module

            queue = role.removeprefix("bursts-")
            return [Bursts(f"burst{mark}{i}", text, queue, notes) for i in range(3)]
        case _ if "/" in role:
            return [Receiver(f"receiver{mark}{i}", text, role, notes) for i in range(2)]
        case _:
            raise ValueError(role)


def main() -> None:
    """Work until standard input ends, then stop in good order."""
    role, text, amqp_url, mark, *lane = sys.argv[1:]
    actors = actors_of(role, text, amqp_url, mark)
    for actor in actors:
        actor.amqp_url = amqp_url
        actor.lane = lane[0] if lane else actor.lane
        actor.start()
    sys.stdin.read()
    for actor in actors:
        actor.ending.set()
    for actor in actors:
        actor.join(timeout=120)
    still = [f"{actor.name} did not stop" for actor in actors if actor.is_alive()]
    faults = [f"{actor.name}: {fault}" for actor in actors for fault in actor.faults]
    sys.exit("\n".join([*still, *faults[:10]]) or 0)


if __name__ == "__main__":
    main()


def completing(receiver: ServiceBusReceiver) -> Iterator[str]:
    """Receive and complete one message after the other, until none has come for a lock's time."""
    while messages := receiver.receive_messages(1, max_wait_time=LOCK_MS / 1000 + 5):
        receiver.complete_message(messages[0])
        yield b"".join(messages[0].body).decode()
