"""Clients in processes of their own on the places of `Config.json`, what is sent to them meanwhile,
and the account at the end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import MessageNotFoundError, OperationTimeoutError

from tests.acceptance.balancer import Balancer
from tests.accounting.account import Account, Left, Line, faults_of
from tests.accounting.fates import POISON
from tests.fixtures.bridge import Bridge

MAX_DELIVERY_COUNT = 5
LOCK_S = {"sessions": 30.0}
SESSIONS = 12
AHEAD_MS = (200, 1_500)
POISONED = 0.02
CUT_EVERY_S = (1.0, 4.0)
SETTLES_WITHIN_S = 180.0
UNCLOSED = 3
"""The status of a client that was told to end and has left something open. The JavaScript SDK does
so when its connection was cut; others, and it without a cut, end by themselves."""
FULL = 100
"""A page of the drains, and the most that waits in a batch."""

FED_BY = {
    "plain": ("plain",),
    "taken": ("taken",),
    "sessions": ("sessions",),
    "unique": ("unique",),
    "target": ("target", "source", "events"),
    "events/subscriptions/all": ("events",),
}
"""Place -> where what comes there is sent to."""


@dataclass(frozen=True, slots=True)
class Client:
    """A program that receives from a place.

    Attributes:
        command: gets CONNECTION_STRING and PLACE behind its own arguments.
        has_cuts: it connects through something that cuts its connections.
    """

    place: str
    command: tuple[str, ...]
    has_cuts: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """What clients connect to.

    Attributes:
        has_cuts: something is in between that cuts connections.
    """

    connection_string: str
    amqp_url: str
    has_cuts: bool = False


ClientOf = Callable[[Where], Client]
"""Makes a client, once it is known where the bridge is."""


def python_client(lane: str, kind: str, place: str) -> ClientOf:
    """Return a Python client; see `worker`."""

    def of(where: Where) -> Client:
        module = (sys.executable, "-W", "ignore", "-m", "tests.accounting.worker")
        arguments = (lane, kind, where.connection_string, where.amqp_url, place)
        return Client(place, (*module, *arguments), where.has_cuts)

    return of


def other_client(command: Callable[[], Sequence[str]], kind: str, place: str) -> ClientOf:
    """Return a client in another language: `COMMAND KIND CONNECTION_STRING PLACE`."""

    def of(where: Where) -> Client:
        return Client(place, (*command(), kind, where.connection_string, place), where.has_cuts)

    return of


class _Process:
    """A client at work."""

    def __init__(self, client: Client, lines: list[Line]) -> None:
        self.client = client
        self._lines = lines
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # read when it has ended
        self._process = subprocess.Popen(
            client.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=dict(os.environ),
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.append({**json.loads(line), "by": self._process.pid})

    def tell_to_end(self) -> None:
        """Have it close with what it holds."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self) -> str:
        """Wait until it has ended; return what is wrong with that."""
        try:
            status = self._process.wait(SETTLES_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.seek(0)
        said = self._errors.read()[-2_000:]
        self._errors.close()
        if status == UNCLOSED and self.client.has_cuts:
            return ""
        name = " ".join(self.client.command[-4:])
        return f"{name}: ended with {status}: {said}" if status else ""


@dataclass
class Mix:
    """A bridge, the clients on it, and what was sent.

    Attributes:
        cut: clients whose connections are cut every few seconds while messages are sent.
        senders: how many send at a time.
        lines: place -> what its clients printed.
        sent: where to -> identities that were accepted.
    """

    bridge: Bridge
    clients: Sequence[ClientOf]
    seed: int = 0
    cut: Sequence[ClientOf] = ()
    senders: int = 1
    lines: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    sent: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def run(self, count: int) -> str:
        """Send so many messages while the clients work, judge; return it in numbers.

        Raises:
            AssertionError: with every fault.
        """
        here = Where(self.bridge.connection_string, self.bridge.amqp_url)
        with Balancer(self.bridge.port) as balancer:
            there = here.connection_string.replace(f":{self.bridge.port};", f":{balancer.port};")
            cut = Where(there, here.amqp_url, has_cuts=True)
            clients = [*(of(here) for of in self.clients), *(of(cut) for of in self.cut)]
            places = sorted({each.place for each in clients})
            processes = [_Process(each, self.lines[each.place]) for each in clients]
            try:
                self._send_all(count, places, balancer)
                self._await_quiet(places)
            finally:
                for process in processes:
                    process.tell_to_end()
                ends = [process.end() for process in processes]
        faults = [end for end in ends if end]
        with ThreadPoolExecutor() as at_once:
            found = at_once.map(lambda place: list(self._drain(place)), places)
            left = dict(zip(places, found, strict=True))
        for place in places:
            has_cuts = any(each.has_cuts for each in clients if each.place == place)
            faults += faults_of(self._account(place, left[place], has_cuts=has_cuts))
        numbers = self._numbers(left)
        assert not faults, "\n".join([f"{len(faults)} faults", *faults[:20], numbers])
        return numbers

    def _account(self, place: str, left: list[Left], *, has_cuts: bool) -> Account:
        return Account(
            place=place,
            max_delivery_count=MAX_DELIVERY_COUNT,
            sent=[identity for to in FED_BY[place] for identity in self.sent[to]],
            lines=self.lines[place],
            left=left,
            has_cuts=has_cuts,
        )

    def _numbers(self, left: dict[str, list[Left]]) -> str:
        rows = []
        for place, lines in sorted(self.lines.items()):
            how = Counter(each["how"] for each in lines if each["what"] == "settled")
            refused = sum(each["what"] == "refused" for each in lines)
            states = Counter(each.state for each in left.get(place, ()))
            sent = sum(len(self.sent[to]) for to in FED_BY[place])
            rows.append(f"{place}: {sent} sent, {dict(how)}, {refused} refused, {dict(states)}")
        return "\n".join(rows)

    def _send_all(self, count: int, places: Iterable[str], balancer: Balancer) -> None:
        targets = sorted({to for place in places for to in FED_BY[place]})
        chance = random.Random(self.seed)
        with ThreadPoolExecutor(self.senders) as at_once:
            share = count // self.senders
            sending = [
                at_once.submit(self._send, share, targets, f"{self.seed}-{index}")
                for index in range(self.senders)
            ]
            while self.cut and not all(each.done() for each in sending):
                time.sleep(chance.uniform(*CUT_EVERY_S))
                balancer.cut()
            for each in sending:
                each.result()

    def _send(self, count: int, targets: list[str], mark: str) -> None:
        chance = random.Random(mark)
        made = 0
        with ServiceBusClient.from_connection_string(self.bridge.connection_string) as client:
            senders = {to: client.get_queue_sender(to) for to in targets}
            while made < count:
                to = chance.choice(targets)
                size = chance.choice((1, 1, 2, 10, 30))
                numbers = range(made, made + size)
                messages = [self._message(chance, to, f"{mark}-{number}") for number in numbers]
                made += size
                self._send_to(chance, to, senders[to], messages)
            for sender in senders.values():
                sender.close()

    def _message(self, chance: random.Random, to: str, mark: str) -> ServiceBusMessage:
        poison = f"{POISON}-" if chance.random() < POISONED else ""
        identity = f"{poison}{to}-{mark}"
        session = f"s{chance.randrange(SESSIONS)}" if to == "sessions" else None
        return ServiceBusMessage(identity, message_id=identity, session_id=session)

    def _send_to(
        self, chance: random.Random, to: str, sender: Any, messages: list[ServiceBusMessage]
    ) -> None:
        way = chance.random()
        if way < 0.2 and to != "sessions":
            ahead = timedelta(milliseconds=chance.randint(*AHEAD_MS))
            sender.schedule_messages(messages, datetime.now(UTC) + ahead)
        elif way < 0.6 or to == "sessions":
            for message in messages:
                sender.send_messages(message)
        else:
            sender.send_messages(messages)
        if to == "unique" and chance.random() < 0.5:
            sender.send_messages(messages)
        self.sent[to] += [str(each.message_id) for each in messages]

    def _await_quiet(self, places: Iterable[str]) -> None:
        """Wait until nothing has been printed for longer than a lock."""
        quiet_s = max(LOCK_S.get(place, 10.0) for place in places if place != "sessions") + 2
        end = time.monotonic() + SETTLES_WITHIN_S
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < quiet_s:
            assert time.monotonic() < end, f"not quiet within {SETTLES_WITHIN_S} s"
            time.sleep(0.2)
            now = sum(len(lines) for lines in self.lines.values())
            if now != seen:
                seen, since = now, time.monotonic()

    def _drain(self, place: str) -> Iterable[Left]:
        """Take out of a place all that is left, and say where it was."""
        deferred = sorted(
            (each["session"], each["number"])
            for each in self.lines[place]
            if each["what"] == "settling" and each["how"] == "defer"
        )
        text = self.bridge.connection_string
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            yield from _deferred(client, place, deferred)
            yield from _active(client, place)
            with _receiver(client, place, sub_queue="deadletter") as receiver:
                yield from _taken(receiver, "dead", 3.0)
            yield from _shown(client, place)


def _receiver(client: ServiceBusClient, place: str, **options: Any) -> Any:
    options = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options}
    topic, is_subscription, name = place.partition("/subscriptions/")
    if is_subscription:
        return client.get_subscription_receiver(topic, name, **options)
    return client.get_queue_receiver(place, **options)


def _taken(receiver: Any, state: str, quiet_s: float) -> Iterable[Left]:
    while messages := receiver.receive_messages(FULL, max_wait_time=quiet_s):
        for message in messages:
            yield _left(message, state)


def _left(message: Any, state: str) -> Left:
    reason = message.dead_letter_reason or ""
    return Left(message.message_id, state, message.sequence_number, reason)


def _deferred(
    client: ServiceBusClient, place: str, candidates: list[tuple[str, int]]
) -> Iterable[Left]:
    """Take the deferred messages of these sessions ("" for none) and numbers that are there."""
    for session, group in groupby(candidates, key=lambda each: each[0]):
        options: Any = {"session_id": session, "max_wait_time": 60} if session else {}
        with _receiver(client, place, **options) as receiver:
            for _, number in group:
                with suppress(MessageNotFoundError):
                    for message in receiver.receive_deferred_messages([number]):
                        yield _left(message, "deferred")


def _active(client: ServiceBusClient, place: str) -> Iterable[Left]:
    if place != "sessions":
        with _receiver(client, place) as receiver:
            yield from _taken(receiver, "active", LOCK_S.get(place, 10.0) + 2)
        return
    with suppress(OperationTimeoutError):
        while True:
            with _receiver(
                client, place, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=3
            ) as receiver:
                yield from _taken(receiver, "active", 2.0)


def _shown(client: ServiceBusClient, place: str) -> Iterable[Left]:
    """What a peek still shows when all was taken: it must be nothing."""
    sessions = [f"s{index}" for index in range(SESSIONS)] if place == "sessions" else [""]
    for session in sessions:
        options: Any = {"session_id": session, "max_wait_time": 60} if session else {}
        with _receiver(client, place, **options) as receiver:
            for message in receiver.peek_messages(FULL, sequence_number=1):
                yield _left(message, "shown")
