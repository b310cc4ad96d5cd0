"""A bridge under load that is killed again and again, and the judgement at the end."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError

from tests.brokers.node import Node
from tests.crash.events import Accepted, Event, Killed, Settled, from_line
from tests.crash.history import Fault, check
from tests.crash.load import LOCK_MS, delivery, now_ms
from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker

AHEAD_MS = 20_000
"""The farthest that the load schedules ahead."""

DRAINED_AT_ONCE = 10
"""A receive that asks for more than may be locked at a time (15 in an old cluster) waits for the
rest, in vain."""


class Notes:
    """What has been seen of one queue."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Note an event."""
        with self._lock:
            self._events.append(event)

    def events(self) -> list[Event]:
        """Return what has been noted so far."""
        with self._lock:
            return list(self._events)

    def count(self, kind: type[Event]) -> int:
        """Return how many events of a kind there are."""
        return sum(isinstance(event, kind) for event in self.events())


@contextmanager
def clients(role: str, bridge: Bridge, mark: str, *books: Notes) -> Iterator[None]:
    """The clients of a role in a process of their own; afterwards each has stopped.

    Args:
        mark: what tells its messages from those of the same role on another bridge.
        books: where each event is noted.
    """
    process = subprocess.Popen(
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.crash.load"),
            *(role, bridge.connection_string, bridge.amqp_url, mark),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines = process.stdout

    def read() -> None:
        for line in lines:
            event = from_line(line)
            for notes in books:
                notes.add(event)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        process.stdin.close()
        reader.join()
        lines.close()
        assert process.wait(timeout=120) == 0, f"the clients of role {role} did not stop"


class Siege:
    """Bridges on one RabbitMQ, with clients at work on each.

    Attributes:
        bridges: all of them.
        bridge: the first.
        load: what happens on the queue of four senders, four receivers and a schedule.
        side: what happens where little is completed, and natively.
    """

    def __init__(self, *bridges: Bridge) -> None:
        self.bridges = bridges
        self.bridge = bridges[0]
        self.load = Notes()
        self.side = Notes()
        self._own = {bridge: Notes() for bridge in bridges}

    def notes_of(self, port: int) -> Notes:
        """Return what happened over the bridge at this port, where much is sent and received."""
        return next(notes for bridge, notes in self._own.items() if bridge.port == port)

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Have all clients at work meanwhile; afterwards nothing is on its way."""
        with ExitStack() as at_work:
            for index, bridge in enumerate(self.bridges):
                mark = chr(ord("a") + index)
                for role, books in (
                    ("send", (self.load, self._own[bridge])),
                    ("receive", (self.load, self._own[bridge])),
                    ("side", (self.side,)),
                    ("unwatched", ()),
                ):
                    at_work.enter_context(clients(role, bridge, mark, *books))
            self.progress()
            yield
            self.progress()

    def progress(self, *, within_s: float = 120) -> None:
        """Wait until every bridge's clients have messages accepted and settled again."""
        for bridge, notes in self._own.items():
            await_more(notes, f"on port {bridge.port}", within_s=within_s)

    def kill_in_turn(
        self,
        *books: Notes,
        kills: int,
        progress: Callable[[], None],
        pause_s: tuple[float, float] = (0.2, 3),
        broker: Broker | None = None,
    ) -> None:
        """Kill one of the bridges so many times, and let the clients go on after each.

        Args:
            books: where each kill is noted.
            kills: how many; the chance behind them is another for each count.
            progress: waits until the clients have gone on.
            pause_s: between two kills, so long or less.
            broker: its RabbitMQ is killed instead every second time.
        """
        chance = random.Random(kills)
        progress()
        for turn in range(kills):
            time.sleep(chance.uniform(*pause_s))
            begun_ms, is_broker = now_ms(), broker is not None and turn % 2 == 1
            bridge = chance.choice(self.bridges)
            victim = broker.node if broker is not None and is_broker else bridge
            assert victim is not None
            victim.kill()
            for notes in books:
                notes.add(Killed(now_ms(), is_broker=is_broker, begun_ms=begun_ms))
            victim.start()
            progress()

    def note_kill(
        self, *, is_broker: bool = False, is_orderly: bool = False, begun_ms: int | None = None
    ) -> None:
        """Note that a process has died."""
        kill = Killed(now_ms(), is_broker=is_broker, is_orderly=is_orderly, begun_ms=begun_ms)
        for notes in (self.load, self.side):
            notes.add(kill)

    def kill(self, bridge: Bridge | None = None) -> None:
        """Kill a bridge now; the first one unless told otherwise."""
        begun_ms = now_ms()
        (bridge or self.bridge).kill()
        self.note_kill(begun_ms=begun_ms)

    def start_armed(self, failpoint: str, *, within_s: float) -> bool:
        """Start the bridge with a failpoint; return whether it was reached and killed it."""
        begun = time.monotonic()
        try:
            self.bridge.start(BUSBRIDGE_FAILPOINT=failpoint)
        except AssertionError:
            # Points of the start-up are reached before the bridge says that it is ready.
            pass
        else:
            while self.bridge.is_running and time.monotonic() - begun < within_s:
                time.sleep(0.02)
        is_reached = not self.bridge.is_running
        if is_reached:
            assert self.bridge.wait(within_s=120) == -signal.SIGKILL, "\n".join(
                self.bridge.lines[-30:]
            )
        else:
            self.bridge.kill()
        self.note_kill()
        return is_reached

    def drain(self, queue: str, notes: Notes, *, quiet_s: float) -> None:
        """Receive all that is left, from the queue and then its dead letters.

        Args:
            quiet_s: how long nothing must come: longer than a lock, and than the schedule reaches.
        """
        text = self.bridge.connection_string
        with ServiceBusClient.from_connection_string(text) as client:
            # A dead letter that never had a number goes back to get one.
            for part, quiet in ((None, quiet_s), ("deadletter", 2.0), (None, 2.0)):
                with client.get_queue_receiver(queue, sub_queue=part) as receiver:
                    end = time.monotonic() + quiet
                    while (left_s := end - time.monotonic()) > 0:
                        for message in receiver.receive_messages(
                            DRAINED_AT_ONCE, max_wait_time=left_s
                        ):
                            seen = delivery(message, is_dead=part is not None)
                            notes.add(seen)
                            end = max(end, time.monotonic() + min(quiet, LOCK_MS / 1000 + 1))
                            try:
                                receiver.complete_message(message)
                            except MessageLockLostError:
                                continue  # it comes again; whether too soon is judged
                            notes.add(
                                Settled(seen.id, seen.number, now_ms(), is_dead=part is not None)
                            )

    def judge(self) -> str:
        """Drain both queues; fail with every fault; return what happened in numbers."""
        faults: list[Fault] = []
        stories: list[str] = []
        summary = []
        quiet_s = LOCK_MS / 1000 + 1
        with ThreadPoolExecutor() as at_once:
            drains = [
                at_once.submit(self.drain, queue, notes, quiet_s=max(quiet_s, ahead_s))
                for queue, notes, ahead_s in (
                    ("load", self.load, AHEAD_MS / 1000 + 3),
                    ("side", self.side, 0),
                )
                if notes.events()
            ]
        for drain in drains:
            drain.result()
        for queue, notes in (("load", self.load), ("side", self.side)):
            if not notes.events():
                continue
            found = check(notes.events(), bridges=len(self.bridges))
            faults += found
            stories += [f"{fault}\n{story(fault, notes.events())}" for fault in found[:10]]
            counts = Counter(type(event).__name__ for event in notes.events())
            summary.append(f"{queue}: {dict(counts)}")
        shown = "\n".join([*stories, *summary])
        assert not faults, f"{len(faults)} faults:\n{shown}"
        return "\n".join(summary)


def await_more(notes: Notes, where: str = "", *, within_s: float = 120) -> None:
    """Wait until another message is accepted, and another settled."""
    for kind in (Accepted, Settled):
        before = notes.count(kind)
        wait_for(
            f"another {kind.__name__} {where}",
            lambda kind=kind, before=before: notes.count(kind) > before,  # type: ignore[misc]
            within_s=within_s,
        )


def faultless(events: list[Event], *, bridges: int = 1) -> str:
    """Fail with every fault; return the counts."""
    faults = check(events, bridges=bridges)
    shown = "\n".join(f"{fault}\n{story(fault, events)}" for fault in faults[:10])
    assert not faults, f"{len(faults)} faults:\n{shown}"
    counts = Counter(type(event) for event in events)
    return f"{counts[Accepted]} accepted, {counts[Settled]} settled"


def story(fault: Fault, events: list[Event]) -> str:
    """Return the events that concern a fault, and all kills."""
    words = set(re.findall(r"[\w.-]+", fault.text))
    concerned = [
        event
        for event in events
        if words.intersection(getattr(event, "ids", (getattr(event, "id", ""),)))
    ]
    kills = [event for event in events if isinstance(event, Killed)]
    ordered = sorted([*concerned, *kills], key=lambda event: event.at_ms)
    return "\n".join(f"    {event}" for event in ordered)


def wait_for_acks(node: Node, queue: str, left: int) -> None:
    """Wait until RabbitMQ has carried out the acks of all but so many of a queue's messages.

    A completion is answered when it is written: a kill may come before.
    """
    counted = ("-q", "list_queues", "--no-table-headers", "name", "messages")
    row = f"{queue}\t{left}"
    wait_for("the acks", lambda: row in node.rabbitmqctl(*counted).splitlines(), within_s=120)


def wait_for(what: str, holds: Callable[[], bool], *, within_s: float) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.05)
