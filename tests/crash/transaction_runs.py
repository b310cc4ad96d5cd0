"""Runs of clients with transactions that are hurt, and the judgement of what is there then."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of
from tests.crash.history import Fault
from tests.crash.transaction_events import (
    FoundAtEnd,
    Stored,
    TransactionEnded,
    TransactionEvent,
    from_line,
    to_line,
)
from tests.crash.transaction_history import check_transactions, in_doubt
from tests.crash.transaction_worker import PLACES, SESSION_IDS
from tests.fixtures.waiting import eventually

BLOWS = 3
FILLED = 12
ENDS_BETWEEN = (1, 6)
"""So many transactions are committed between two blows."""

REACHED_WITHIN_S = 4.0
STOPS_WITHIN_S = 150.0
SETTLED_WITHIN_S = 240.0
"""What a bridge holds for one that is gone comes back after 150 s."""

HEALS = {"lost", "half"}
"""What may be wrong only because something is still held; the rest no waiting mends."""

PASSING = (
    MessageLockLostError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
"""Nothing was completed by what raises these."""

QUIET_S = 6.0
"""Longer than a lock."""

QUEUES: dict[str, dict[str, Any]] = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 100, "RequiresSession": name == "sessions"}
    for name in PLACES
}

POINTS = (
    *("engine.commit.begun", "engine.commit.decided", "engine.complete.acked"),
    *("engine.abandon.rejected", "engine.send.published", "engine.send.confirmed"),
    *("engine.drop.acked", "engine.session.returned", "queue.made_on_use"),
    *(
        f"{site}.{step}"
        for site in (
            *("engine.transfer", "engine.dead_letter", "engine.defer"),
            *("sequencer.journal", "sequencer.number", "sequencer.again", "sequencer.ownership"),
        )
        for step in ("published", "confirmed", "acked")
    ),
)


class TransactionNotes:
    """What has happened so far."""

    def __init__(self) -> None:
        self._events: list[TransactionEvent] = []
        self._lock = threading.Lock()

    def add(self, event: TransactionEvent) -> None:
        """Note an event."""
        with self._lock:
            self._events.append(event)

    def events(self) -> list[TransactionEvent]:
        """Return what has been noted."""
        with self._lock:
            return list(self._events)

    @property
    def commits(self) -> int:
        """How many transactions are known to be committed."""
        return sum(isinstance(e, TransactionEnded) and e.is_committed for e in self.events())


class TransactingClient:
    """A client in a process of its own."""

    def __init__(self, stage: TransactionStage, bridge: Bridge, name: str, source: str) -> None:
        self.bridge, self.source = bridge, source
        session_id = stage.chance.choice(SESSION_IDS) if source == "sessions" else ""
        self._log = (stage.folder / f"{name}.err").open("wb")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.crash.transaction_worker"),
                *(bridge.connection_string, str(bridge.port), name, source, session_id),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._notes = stage.notes
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """Have it end its last transaction; return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOPS_WITHIN_S)
        finally:
            self.kill()
        return self._process.returncode

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        self._log.close()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed while it wrote
                    self._notes.add(from_line(line))


@dataclass
class TransactionStage:
    """Bridges on one RabbitMQ.

    Attributes:
        hurt_rabbitmq: kills RabbitMQ, or a node of it, and starts it again.
        told: what was hurt, for whoever reads a failure.
    """

    bridges: list[Bridge]
    hurt_rabbitmq: Callable[[random.Random], None]
    folder: Path
    chance: random.Random
    notes: TransactionNotes = field(default_factory=TransactionNotes)
    clients: list[TransactingClient] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def start_client(self, bridge: Bridge, source: str) -> None:
        """Start one more."""
        name = f"c{len(list(self.folder.glob('*.err')))}"
        self.clients.append(TransactingClient(self, bridge, name, source))


def _kill_client(stage: TransactionStage) -> None:
    victim = stage.chance.choice(stage.clients)
    victim.kill()
    stage.clients.remove(victim)
    stage.start_client(victim.bridge, victim.source)


def _kill_bridge(stage: TransactionStage) -> None:
    bridge = stage.chance.choice(stage.bridges)
    bridge.restart()


def _kill_bridge_at_a_point(stage: TransactionStage) -> None:
    """Each is the leader of some entity, or becomes it when another one dies."""
    bridge = stage.chance.choice(stage.bridges)
    point = f"{stage.chance.choice(POINTS)}:{stage.chance.choice((1, 1, 2, 3, 5))}"
    bridge.kill()
    try:
        bridge.start(BUSBRIDGE_FAILPOINT=point)
    except AssertionError:
        pass  # the start-up reaches some
    else:
        if stage.chance.random() < 0.5:
            for other in stage.bridges:
                if other is not bridge:
                    other.restart()
        end_s = time.monotonic() + REACHED_WITHIN_S
        while bridge.is_running and time.monotonic() < end_s:
            time.sleep(0.02)
    if bridge.is_running:
        stage.told.append(f"  {point} is not reached")
        bridge.kill()
    else:
        code = bridge.wait(within_s=120)
        assert code == -signal.SIGKILL, "\n".join(bridge.lines[-30:])
        stage.told.append(f"  {point}")
    bridge.start()


def _kill_rabbitmq(stage: TransactionStage) -> None:
    stage.hurt_rabbitmq(stage.chance)


VICTIMS = {
    "a client": _kill_client,
    "a bridge": _kill_bridge,
    "a bridge at a point": _kill_bridge_at_a_point,
    "RabbitMQ": _kill_rabbitmq,
}


def play_transactions(stage: TransactionStage) -> None:
    """Have clients at work, hurt something by chance, receive all, and judge."""
    try:
        _fill(stage)
        with _at_work(stage):
            for _ in range(stage.chance.randint(1, BLOWS)):
                _await_commits(stage, stage.chance.randint(*ENDS_BETWEEN))
                name = stage.chance.choice(sorted(VICTIMS))
                stage.told.append(f"{name} after {stage.notes.commits} commits")
                VICTIMS[name](stage)
            _await_commits(stage, 3)
        judge_transactions(stage)
    finally:
        print("\n".join(stage.told))


def _fill(stage: TransactionStage) -> None:
    with client_of(stage.bridges[0]) as client:
        for place in PLACES:
            ids = [f"{place}-{number}" for number in range(FILLED)]
            with client.get_queue_sender(place) as sender:
                sender.send_messages(
                    [
                        ServiceBusMessage(
                            each, session_id=SESSION_IDS[at % 2] if place == "sessions" else None
                        )
                        for at, each in enumerate(ids)
                    ]
                )
            for each in ids:
                stage.notes.add(Stored(each, place))


@contextmanager
def _at_work(stage: TransactionStage) -> Iterator[None]:
    for at, source in enumerate(PLACES):
        stage.start_client(stage.bridges[at % len(stage.bridges)], source)
    stage.start_client(stage.chance.choice(stage.bridges), stage.chance.choice(PLACES[:2]))
    try:
        yield
    except BaseException:
        for client in stage.clients:
            client.kill()
        raise
    codes = [client.stop() for client in stage.clients]
    assert codes == [0] * len(codes), _errors(stage)


def _await_commits(stage: TransactionStage, count: int) -> None:
    wanted = stage.notes.commits + count
    try:
        eventually(lambda: stage.notes.commits >= wanted, "transactions are committed")
    except AssertionError:
        health = [bridge.get("/health") for bridge in stage.bridges if bridge.is_running]
        raise AssertionError("\n".join([*stage.told, _errors(stage), *health])) from None


def _errors(stage: TransactionStage) -> str:
    return "\n".join(path.read_text()[-2_000:] for path in sorted(stage.folder.glob("*.err")))


def judge_transactions(stage: TransactionStage) -> None:
    """Receive all that there is until nothing is wrong any more; then nothing may come."""
    end_s = time.monotonic() + SETTLED_WITHIN_S
    faults: list[Fault] = []
    is_quiet = False
    while not is_quiet:
        _receive_all(stage)
        faults = check_transactions(stage.notes.events())
        if time.monotonic() > end_s or not {fault.kind for fault in faults} <= HEALS:
            break
        if not faults:
            time.sleep(QUIET_S)
            before = len(stage.notes.events())
            _receive_all(stage)
            faults = check_transactions(stage.notes.events())
            is_quiet = not faults and len(stage.notes.events()) == before
    events = stage.notes.events()
    ends = [each for each in events if isinstance(each, TransactionEnded)]
    committed = sum(each.is_committed for each in ends)
    refused = Counter(each.why.split(" TrackingId")[0] for each in ends)
    doubted = len(in_doubt(events))
    stage.told.append(f"{committed} committed, {doubted} in doubt; {dict(refused)}")
    (stage.folder / "events").write_text("".join(f"{to_line(each)}\n" for each in events))
    assert not faults, "\n".join([*map(str, faults), _story(faults, events)])


def _story(faults: list[Fault], events: list[TransactionEvent]) -> str:
    words = {word.strip("[]',()") for fault in faults[:10] for word in fault.text.split()}
    told = [
        each
        for each in events
        if {getattr(each, "id", ""), getattr(each, "transaction", "")} & words
    ]
    return "\n".join(f"    {each}" for each in told)


def _receive_all(stage: TransactionStage) -> None:
    """Complete whatever comes: of each queue, session and dead-letter queue at once."""
    parts = [(place, None) for place in PLACES if place != "sessions"]
    parts += [("sessions", session_id) for session_id in SESSION_IDS]
    with ThreadPoolExecutor() as at_once:
        receiving = [
            *(at_once.submit(_once_answered, partial(_receive_alive, stage, *p)) for p in parts),
            *(at_once.submit(_once_answered, partial(_receive_dead, stage, p)) for p in PLACES),
        ]
    for each in receiving:
        each.result()


def _once_answered(receive: Callable[[], None]) -> None:
    """Receive, again while RabbitMQ that was killed keeps a bridge waiting.

    A lock that ends before its message is completed ends on a machine that is slow: it comes again.
    """
    end_s = time.monotonic() + STOPS_WITHIN_S
    while True:
        try:
            return receive()
        except PASSING:
            if time.monotonic() > end_s:
                raise


def _receive_alive(stage: TransactionStage, place: str, session_id: str | None) -> None:
    with (
        client_of(stage.bridges[0]) as client,
        client.get_queue_receiver(place, session_id=session_id) as receiver,
    ):
        _receive(stage, receiver, place, "active")
        peeked = receiver.peek_messages(250)
        if numbers := [each.sequence_number for each in peeked if each.state.name == "DEFERRED"]:
            found = receiver.receive_deferred_messages(numbers)
            _complete(stage, receiver, found, place, "deferred")


def _receive_dead(stage: TransactionStage, place: str) -> None:
    with (
        client_of(stage.bridges[0]) as client,
        client.get_queue_receiver(place, sub_queue="deadletter") as receiver,
    ):
        _receive(stage, receiver, place, "dead")


def _receive(stage: TransactionStage, receiver: Any, place: str, state: str) -> None:
    while found := receiver.receive_messages(10, max_wait_time=1):
        _complete(stage, receiver, found, place, state)


def _complete(
    stage: TransactionStage, receiver: Any, found: list[Any], place: str, state: str
) -> None:
    for each in found:
        receiver.complete_message(each)
        stage.notes.add(FoundAtEnd(str(each), place, state))
