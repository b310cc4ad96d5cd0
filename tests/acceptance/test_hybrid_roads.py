"""The roads of docs/hybrid.md, walked with its own files and command lines, forth and back.

One bridge plays Azure: behind a tap, over TLS, it knows no relay. Producers and consumers are
Azure's SDK's, and move as the page says. Each message is accounted for by its id where it was
completed: none is lost, and none is there twice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusSender,
)

from bridge.broker.node.ports import Ports
from bridge.relay.running.watch import WATCH_S
from bridge.testing.http_answers import http_answer
from tests.acceptance.sdk import client_of, send, take
from tests.brokers.certificates import make_certificates
from tests.conformance.served import server_tls
from tests.fixtures.administration import KEY, connection_string
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.tap import forget_source, tap_in_thread
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "hybrid.md"
LOCK = {"LockDuration": "PT15S"}
WINDOW = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT10M"}
ENTITIES: dict[str, dict[str, Any]] = {
    "orders": LOCK,
    "payments": {**LOCK, "RequiresSession": True},
    "once": {**LOCK, **WINDOW},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "billing"}]}]
"""What there is at Azure; the page makes what the bridge has."""

PACE_S = 0.05
SOME = 20
LATER_S = 20
LOCKS_END_S = 240.0
"""Locks of a queue that the page makes last a minute."""

Rows = list[dict[str, Any]]


# -- the page


@dataclass(frozen=True)
class Step:
    """A numbered step: the command lines of each of its blocks."""

    blocks: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the only block."""
        (found,) = self.blocks
        return found


@dataclass(frozen=True)
class Road:
    """A section of the page: its files by name, and its ways, each of numbered steps."""

    files: Mapping[str, str]
    ways: tuple[tuple[Step, ...], ...]

    @classmethod
    def of(cls, title: str) -> Road:
        """Read the section of a title."""
        section = PAGE.read_text().split(f"\n### {title}\n")[1].split("\n### ")[0]
        named = re.findall(r"`([a-z-]+\.toml)`:\n\n```toml\n(.*?)```", section, re.DOTALL)
        assert len(named) == section.count("```toml")
        ways: list[list[Step]] = []
        for number, text in re.findall(
            r"^(\d)\. (.*?)(?=^\S|\Z)", section, re.DOTALL | re.MULTILINE
        ):
            if number == "1":
                ways.append([])
            assert int(number) == len(ways[-1]) + 1
            ways[-1].append(Step(blocks_in(text)))
        lines = sum(len(block) for way in ways for step in way for block in step.blocks)
        assert lines == len(re.findall(r"^ +busbridge ", section, re.MULTILINE))
        return cls(dict(named), tuple(tuple(each) for each in ways))


def blocks_in(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the command lines of each block of a text; what is exported there is left out."""
    found = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    stripped = ([line.strip() for line in block.splitlines()] for block in found)
    return tuple(
        tuple(line for line in lines if line and not line.startswith("export "))
        for lines in stripped
    )


def moving() -> str:
    """Return what the page says before the first road."""
    return PAGE.read_text().split("\n## Moving an application\n")[1].split("\n### ")[0]


def sides() -> str:
    """Return the sides with which each file of a road begins."""
    (found,) = re.findall(r"```toml\n(.*?)```", moving(), re.DOTALL)
    return str(found)


# -- who walks


class Operator:
    """Somebody at a shell who does what the page says.

    Attributes:
        variables: what else is exported.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.variables: dict[str, str] = {}
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._ports = Ports(1)
        self._relay: subprocess.Popen[bytes] | None = None
        self._line = ""

    def write(self, road: Road) -> None:
        """Write the files of a road."""
        azure = "[sides.azure]\n"
        named = sides().replace(azure, f'{azure}id = "shop"\n')  # whose host is localhost here
        assert named != sides()
        for name, routes in road.files.items():
            (self._folder / name).write_text(f"{named}\n{routes}")

    def do(self, lines: Sequence[str], *, code: int = 0) -> Rows:
        """Do what lines say; return the rows that they write. A relay stays in the background."""
        rows: Rows = []
        for line in lines:
            if re.match(r"busbridge relay \S+\.toml", line):
                self.start_relay(line)
            else:
                rows += self._said(line, code)
        return rows

    def _said(self, line: str, code: int) -> Rows:
        done = subprocess.run(
            ["sh", "-ec", line], cwd=self._folder, env=self._environment | self.variables,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{line}: {done.stdout}{done.stderr}"
        assert KEY[1] not in done.stdout + done.stderr
        return [json.loads(each) for each in done.stdout.splitlines()]

    # -- the relay

    def start_relay(self, line: str) -> None:
        """Start the relay, in a terminal of its own, so to speak."""
        assert self._relay is None, "one relay at a time"
        self._line = line
        (port,) = self._ports.numbers
        assert "--admin-port 9419" in line
        with (self._folder / "relay.out").open("ab") as said:
            self._relay = subprocess.Popen(
                ["sh", "-ec", f"exec {line.replace('9419', str(port))}"], cwd=self._folder,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip
        eventually(self._is_ready, "the relay is ready")

    def kill_relay(self) -> None:
        """Kill the relay between two steps, and start it again with the same line."""
        process, self._relay = self._relay, None
        assert process is not None
        process.kill()
        process.wait(120)
        self.start_relay(self._line)

    def stop_relay(self) -> None:
        """Stop the relay, as by Ctrl-C."""
        process, self._relay = self._relay, None
        assert process is not None
        process.terminate()
        assert process.wait(120) == 0, (self._folder / "relay.out").read_text()

    def end(self) -> None:
        """End what still runs."""
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait(120)

    def _get(self, path: str) -> str:
        return http_answer(f"http://127.0.0.1:{self._ports.numbers[0]}{path}").decode()

    def _is_ready(self) -> bool:
        assert self._relay is not None
        assert self._relay.poll() is None, (self._folder / "relay.out").read_text()
        try:
            return bool(self._get("/health/ready"))
        except OSError:
            return False

    def reasons(self) -> list[str]:
        """Return what the relay's health complains of."""
        try:
            self._get("/health/ready")
        except urllib.error.HTTPError as error:
            found: list[str] = json.loads(error.read())["reasons"]
            return found
        return []

    def metric(self, name: str) -> list[float]:
        """Return what a metric of the relay says of each route."""
        found = re.findall(rf"^busbridge_relay_{name}\{{.*\}} (\S+)$", self._get("/metrics"), re.M)
        return [float(each) for each in found]

    # -- what the namespaces have

    def is_empty(self, lines: Sequence[str], *paths: str) -> bool:
        """Whether lines that list entities show nothing active and nothing scheduled in these."""
        rows = {row["path"]: row for row in self.do(lines)}
        return not any(rows[each][what] for each in paths for what in ("active", "scheduled"))

    def wait_until_empty(self, lines: Sequence[str], *paths: str) -> None:
        """Do lines that list entities again and again until these are empty."""
        assert lines
        eventually(lambda: self.is_empty(lines, *paths), f"{paths} empty", within_s=LOCKS_END_S)

    def wait_until_silent(self, line: str) -> None:
        """Do a line that shows messages again and again until it shows none."""
        eventually(lambda: not self.do([line]), line, within_s=LOCKS_END_S)

    def check_nothing_is_left(self) -> None:
        """Neither namespace has a message, nor a dead one."""
        for row in self.do(["busbridge ls -n azure", "busbridge ls -n bus"]):
            left = {key: row[key] for key in ("active", "dead_letter", "scheduled", "transfer")}
            assert not any(left.values()), row


class Worker:
    """An application that works at one bridge at a time, in a thread."""

    def __init__(self, entity: str, *, session: str | None = None) -> None:
        self.entity, self.session = entity, session
        self.place: Bridge | None = None
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._work: Future[None] | None = None

    def start(self, place: Bridge) -> None:
        """Begin at a bridge."""
        assert self._work is None, "it works somewhere"
        self.place = place
        self._is_over.clear()
        self._work = self._pool.submit(self._run, place)

    def stop(self) -> None:
        """Finish what is in hand, and end; raises what went wrong meanwhile."""
        work, self._work = self._work, None
        self._is_over.set()
        if work is not None:
            work.result(120)

    def move(self, place: Bridge) -> None:
        """Stop here, and begin there."""
        self.stop()
        self.start(place)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do nothing for a while."""
        place = self.place
        assert place is not None
        self.stop()
        yield
        self.start(place)

    def end(self) -> None:
        """End whatever happened."""
        self._is_over.set()
        self._pool.shutdown()

    def _run(self, place: Bridge) -> None:
        raise NotImplementedError


class Producer(Worker):
    """Sends one message after the other, each with an id of its own.

    Attributes:
        sent: the ids of what was confirmed, in order.
    """

    def __init__(self, name: str, entity: str, *, is_session: bool = False) -> None:
        super().__init__(entity, session=name if is_session else None)
        self.name = name
        self.sent: list[str] = []

    def message(self) -> ServiceBusMessage:
        """Return the next message."""
        name = f"{self.name}-{len(self.sent)}"
        return ServiceBusMessage(name, message_id=name, session_id=self.session)

    def _run(self, place: Bridge) -> None:
        with client_of(place) as client, self._sender(client) as sender:
            while not self._is_over.wait(PACE_S):
                message = self.message()
                sender.send_messages(message)
                self.sent.append(str(message.message_id))

    def _sender(self, client: ServiceBusClient) -> ServiceBusSender:
        return client.get_queue_sender(self.entity)


class Publisher(Producer):
    """A producer that sends to a topic."""

    def _sender(self, client: ServiceBusClient) -> ServiceBusSender:
        return client.get_topic_sender(self.entity)


class Consumer(Worker):
    """Completes what comes, from a queue, one session of it, or a subscription.

    Attributes:
        seen: the ids of what was completed, in order.
    """

    def __init__(
        self, entity: str, *, session: str | None = None, subscription: str | None = None
    ) -> None:
        super().__init__(entity, session=session)
        self.subscription = subscription
        self.seen: list[str] = []

    def _run(self, place: Bridge) -> None:
        options: dict[str, Any] = {"session_id": self.session} if self.session else {}
        with AutoLockRenewer() as renewer, client_of(place) as client:
            if self.session:
                options["auto_lock_renewer"] = renewer
            if self.subscription:
                receiver = client.get_subscription_receiver(self.entity, self.subscription)
            else:
                receiver = client.get_queue_receiver(self.entity, **options)
            # The SDK gives back what comes between two calls: of several one would overtake others.
            count = 1 if self.session else 20
            with receiver:
                while not self._is_over.is_set():
                    for each in receiver.receive_messages(count, max_wait_time=0.5):
                        receiver.complete_message(each)
                        self.seen.append(str(each.message_id))


def wait_for_some(consumers: Sequence[Consumer], producers: Sequence[Producer]) -> None:
    """Wait until each consumer has completed some messages that each producer sends from now."""
    marks = [(each, len(each.sent)) for each in producers]

    def are_sent() -> bool:
        return all(len(each.sent) >= mark + SOME for each, mark in marks)

    eventually(are_sent, "messages are sent")
    wanted = {name for each, mark in marks for name in each.sent[mark : mark + SOME]}

    def are_completed() -> bool:
        return all(wanted <= set(each.seen) for each in consumers)

    eventually(are_completed, "they are completed", within_s=LOCKS_END_S)


def account(sent: Sequence[str], seen: Sequence[str]) -> None:
    """Check that each message that was sent was completed, and once."""
    wanted, found = Counter(sent), Counter(seen)
    assert not wanted - found, f"lost: {sorted(wanted - found)[:10]}"
    assert not found - wanted, f"twice: {sorted(found - wanted)[:10]}"
    assert sent


@dataclass
class World:
    """Two namespaces, who operates the relay between them, and who works there."""

    azure: Bridge
    bus: Bridge
    operator: Operator
    workers: list[Worker]

    def producer(self, name: str, entity: str, **options: Any) -> Producer:
        """Make a producer, which works at Azure."""
        made = Producer(name, entity, **options)
        self.workers.append(made)
        made.start(self.azure)
        return made

    def consumer(self, entity: str, *, at: Bridge | None = None, **options: Any) -> Consumer:
        """Make a consumer, which works at Azure, or at another place."""
        made = Consumer(entity, **options)
        self.workers.append(made)
        made.start(at or self.azure)
        return made


@pytest.fixture
def world(broker: Broker, config: Path, tmp_path: Path) -> Iterator[World]:
    """Azure, as the module's entities are, an empty bridge, and the commands of the page."""
    certificates = tmp_path / "certificates"
    make_certificates(certificates)
    tls = server_tls((certificates / "server.pem", certificates / "server.key"))
    program = tmp_path / "bin" / "busbridge"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bridge.cli.command "$@"\n')
    program.chmod(0o755)
    with broker.fresh_vhost() as first, broker.fresh_vhost() as second:
        azure, bus = bridge_of(broker, first, config=config), bridge_of(broker, second)
        workers: list[Worker] = []
        try:
            azure.start()
            bus.start()
            with tap_in_thread(azure.port, tls=tls) as tap:
                tap.when("attach", forget_source, times=1_000_000)
                operator = Operator(
                    tmp_path,
                    {
                        "PATH": f"{program.parent}:{os.environ['PATH']}",
                        "XDG_CONFIG_HOME": str(tmp_path),
                        "SSL_CERT_FILE": str(certificates / "ca.pem"),
                        "AZURE_SERVICE_BUS": connection_string(tap.port),
                        "BUSBRIDGE": bus.connection_string,
                    },
                )
                try:
                    (profiles,) = blocks_in(moving())
                    operator.do(profiles)
                    yield World(azure, bus, operator, workers)
                finally:
                    for each in workers:
                        each.end()
                    operator.end()
        finally:
            azure.kill()
            bus.kill()


# -- consumers first


def defer_one(azure: Bridge, name: str) -> int:
    """Defer a message of Azure's queue; return its number."""
    with client_of(azure) as client:
        send(client, "orders", ServiceBusMessage(name, message_id=name))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.defer_message(message)
    return int(message.sequence_number or 0)


def complete_deferred(azure: Bridge, number: int) -> None:
    """Receive the deferred message by its number, and complete it."""
    with client_of(azure) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_deferred_messages([number])
        receiver.complete_message(message)


def schedule_one(azure: Bridge, name: str) -> None:
    """Schedule a message at Azure."""
    due = datetime.now(UTC) + timedelta(seconds=LATER_S)
    with client_of(azure) as client, client.get_queue_sender("orders") as sender:
        sender.schedule_messages(ServiceBusMessage(name, message_id=name), due)


def test_consumers_first(world: World) -> None:
    """Consumers, then producers; back by letting consumers finish, and back by a relay.

    Deferred messages are settled where they are, scheduled ones come when they are due, and a
    relay that is killed on the way is started again.
    """
    azure, bus, operator = world.azure, world.bus, world.operator
    road = Road.of("Consumers first")
    operator.write(road)
    (making, starting, _, ending), (_, finishing), (turning, returning, returned) = road.ways
    number = defer_one(azure, "deferred")
    schedule_one(azure, "scheduled")
    producers = [world.producer(name, "orders") for name in ("first", "second")]
    consumer = world.consumer("orders")
    wait_for_some([consumer], producers)

    rows = operator.do(making.lines)
    (counts,) = (row for row in rows if "goes" in row)
    assert (counts["from"], counts["to"]) == ("azure/orders", "bus/orders")
    assert counts["waiting"] >= 1
    (shown,) = operator.do(["busbridge peek orders --state deferred -n azure"])
    assert shown["sequence_number"] == number
    complete_deferred(azure, number)

    consumer.stop()
    operator.do(starting.lines)
    consumer.start(bus)
    wait_for_some([consumer], producers)
    operator.kill_relay()
    wait_for_some([consumer], producers)

    for each in producers:
        each.move(bus)
        wait_for_some([consumer], producers)

    operator.wait_until_empty(ending.lines, "orders")
    operator.stop_relay()
    wait_for_some([consumer], producers)
    assert "scheduled" in consumer.seen

    for each in producers:
        each.move(azure)
    operator.wait_until_empty(finishing.lines, "orders")
    consumer.move(azure)
    wait_for_some([consumer], producers)

    consumer.stop()
    operator.do(starting.lines)
    consumer.start(bus)
    producers[0].move(bus)
    wait_for_some([consumer], producers)
    consumer.stop()
    waiting = Producer("waiting", "orders")
    with client_of(bus) as client:
        for _ in range(SOME):
            message = waiting.message()
            send(client, "orders", message)
            waiting.sent.append(str(message.message_id))
    producers[0].move(azure)
    operator.stop_relay()
    (counts,) = (row for row in operator.do(turning.lines) if "goes" in row)
    assert counts["goes"] >= SOME
    operator.do(returning.lines)
    consumer.start(azure)
    operator.wait_until_empty(returned.lines, "orders")
    operator.kill_relay()
    wait_for_some([consumer], producers)
    operator.stop_relay()

    for each in producers:
        each.stop()
    operator.wait_until_empty(ending.lines, "orders")
    consumer.stop()
    operator.check_nothing_is_left()
    sent = [*producers[0].sent, *producers[1].sent, *waiting.sent, "scheduled"]
    account(sent, consumer.seen)


def test_two_relays_that_turn_one_queue_around_are_a_circle_that_only_one_file_shows(
    world: World,
) -> None:
    """The check of either file finds nothing, and that of both in one names the circle."""
    operator = world.operator
    road = Road.of("Consumers first")
    operator.write(road)
    operator.do(["busbridge create queue orders -n bus"])
    both = Road({"both.toml": "\n".join(road.files.values())}, ())
    operator.write(both)

    for name in road.files:
        rows = operator.do([f"busbridge relay check {name}"])
        assert not any("circle" in row["text"].lower() for row in rows)
    rows = operator.do(["busbridge relay check both.toml"], code=3)
    assert [row["text"][:9] for row in rows if row["result"] == "error"] == ["A circle:"]


def test_what_comes_back_within_the_window_of_its_queue_is_a_duplicate(world: World) -> None:
    """So the page warns of it, and the check, too."""
    azure, bus, operator = world.azure, world.bus, world.operator
    forth = '[[routes]]\nfrom = "azure/once"\nto = "bus/once"\n'
    back = '[[routes]]\nfrom = "bus/once"\nto = "azure/once"\n'
    operator.write(Road({"forth.toml": forth, "back.toml": back}, ()))
    operator.do([
        "busbridge create queue once -n bus --requires-duplicate-detection"
        " --duplicate-detection-history-time-window PT10M"
    ])  # fmt: skip
    with client_of(azure) as client:
        send(client, "once", ServiceBusMessage("x", message_id="x"))
    operator.do(["busbridge relay forth.toml --admin-port 9419"])
    with client_of(bus) as client, client.get_queue_receiver("once") as receiver:
        eventually(lambda: receiver.peek_messages(1), "it has come to the bridge")
    operator.wait_until_empty(["busbridge ls once -n azure"], "once")
    operator.stop_relay()

    rows = operator.do(["busbridge relay check back.toml"])
    warnings = [row["text"] for row in rows if row["result"] == "warning"]
    wanted = "azure/once drops what has been there within PT10M and comes back"
    assert any(each.startswith(wanted) for each in warnings), warnings
    operator.do(["busbridge relay back.toml --admin-port 9419"])
    operator.wait_until_empty(["busbridge ls once -n bus"], "once")
    operator.stop_relay()
    operator.check_nothing_is_left()


# -- producers first


def test_producers_first(world: World) -> None:
    """Producers, then consumers, with sessions, and back: each session keeps its order."""
    azure, bus, operator = world.azure, world.bus, world.operator
    road = Road.of("Producers first")
    operator.write(road)
    (making, _, ending), (starting, moving_back, returned) = road.ways
    names = "first", "second"
    producers = [world.producer(name, "payments", is_session=True) for name in names]
    consumers = [world.consumer("payments", session=name) for name in names]

    def wait() -> None:
        for consumer, producer in zip(consumers, producers, strict=True):
            wait_for_some([consumer], [producer])

    def move_back() -> None:
        (line,) = moving_back.lines
        for each in producers:
            each.stop()
            operator.wait_until_silent(line.replace("SESSION", each.name))
            each.start(azure)
            wait()

    wait()
    operator.do(making.lines)
    for each in producers:
        each.move(bus)
        wait()
    move_back()
    operator.wait_until_empty(returned.lines, "payments")
    operator.kill_relay()  # between two steps: nothing is under way that could come twice
    for each in producers:
        each.move(bus)
        wait()

    operator.stop_relay()
    operator.wait_until_empty(ending.lines, "payments")
    for each in consumers:
        each.stop()
    for each in consumers:
        each.start(bus)
    wait()

    for each in consumers:
        each.stop()
    operator.do(starting.lines)
    for each in consumers:
        each.start(azure)
    wait()
    move_back()
    operator.wait_until_empty(returned.lines, "payments")
    operator.stop_relay()

    for each in producers:
        each.stop()
    operator.wait_until_empty(ending.lines, "payments")
    for each in consumers:
        each.stop()
    operator.check_nothing_is_left()
    for consumer, producer in zip(consumers, producers, strict=True):
        account(producer.sent, consumer.seen)
        assert consumer.seen == producer.sent


# -- a topic


def printed_rules(rows: Rows) -> list[str]:
    """Return the rules that a check has printed, in the order of the routes."""
    texts = [row.get("text", "") for row in rows]
    found = [re.search(r"in place of one that takes all: (.*)$", each) for each in texts]
    return [each[1] for each in found if each is not None]


def test_a_topic_with_subscribers_at_both(world: World) -> None:
    """Publishers move in any order, and a subscriber while they pause; who stays notices nothing.

    Each subscriber sees each message once, whoever publishes it where.
    """
    azure, bus, operator = world.azure, world.bus, world.operator
    road = Road.of("A topic with subscribers at both")
    operator.write(road)
    ((making, _, moving_one, ending),) = road.ways
    entities, rules = making.blocks
    listing, (deleting, creating) = moving_one.lines[:2], moving_one.lines[2:]
    own = "events/Subscriptions/to-bus", "events/Subscriptions/to-azure"
    audit, billing = (world.consumer("events", subscription=each) for each in ("audit", "billing"))

    rows = operator.do(entities)
    to_bus, to_azure = printed_rules(rows)
    operator.variables = {"TO_BUS": to_bus, "TO_AZURE": to_azure}
    assert not printed_rules(operator.do(rules))
    operator.do(["busbridge create subscription events stock -n bus"])
    stock = world.consumer("events", subscription="stock", at=bus)
    subscribers = [audit, billing, stock]
    publishers = [Publisher(name, "events") for name in ("first", "second")]
    world.workers += publishers
    for each in publishers:
        each.start(azure)
    wait_for_some(subscribers, publishers)

    @contextmanager
    def all_paused(subscriber: Consumer) -> Iterator[None]:
        """Have the publishers pause until nothing is under way, and the subscriber has all."""
        with publishers[0].paused(), publishers[1].paused():
            path = f"events/Subscriptions/{subscriber.subscription}"
            here = listing[subscriber.place is bus]
            operator.wait_until_empty([listing[0]], own[0])
            operator.wait_until_empty([listing[1]], own[1])
            operator.wait_until_empty([listing[0]], own[0])
            operator.wait_until_empty([here], path)
            yield

    def named(line: str, subscriber: Consumer, *, other_side: bool) -> str:
        line = line.replace("billing", str(subscriber.subscription))
        swapped = {"azure": "bus", "bus": "azure"}
        return re.sub(r"(?<=-n )\w+$", lambda it: swapped[it[0]], line) if other_side else line

    def move(subscriber: Consumer) -> None:
        is_back = subscriber.place is bus
        with all_paused(subscriber):
            subscriber.stop()
            operator.do(
                [named(each, subscriber, other_side=is_back) for each in (deleting, creating)]
            )
            subscriber.start(azure if is_back else bus)

    publishers[0].move(bus)
    wait_for_some(subscribers, publishers)
    with publishers[0].paused(), publishers[1].paused():
        operator.wait_until_empty([listing[1]], own[1])
        operator.wait_until_empty([listing[0]], own[0])
        operator.kill_relay()
    wait_for_some(subscribers, publishers)
    move(billing)
    wait_for_some(subscribers, publishers)
    publishers[1].move(bus)
    wait_for_some(subscribers, publishers)

    publishers[1].move(azure)
    move(billing)
    wait_for_some(subscribers, publishers)

    for each in publishers:
        if each.place is azure:
            each.move(bus)
    move(billing)
    move(audit)
    wait_for_some(subscribers, publishers)
    operator.wait_until_empty([listing[0]], own[0])
    with publishers[0].paused(), publishers[1].paused():
        operator.wait_until_empty([listing[1]], own[1])
        assert sum(operator.metric("returned_total")) == 0
        operator.stop_relay()
    operator.do(ending.lines)
    wait_for_some(subscribers, publishers)

    for each in publishers:
        each.stop()
    sent = [*publishers[0].sent, *publishers[1].sent]
    eventually(lambda: all(len(each.seen) >= len(sent) for each in subscribers), "all have all")
    for subscriber in subscribers:
        subscriber.stop()
        account(sent, subscriber.seen)
    operator.check_nothing_is_left()


def test_a_subscriber_that_moves_without_a_pause_loses_nothing(world: World) -> None:
    """It reads both for a while, and knows by its MessageId what it sees twice."""
    azure, bus, operator = world.azure, world.bus, world.operator
    road = Road.of("A topic with subscribers at both")
    operator.write(road)
    ((making, _, moving_one, _),) = road.ways
    deleting, creating = moving_one.lines[2:]
    here = world.consumer("events", subscription="billing")
    entities, rules = making.blocks
    operator.variables = dict(
        zip(("TO_BUS", "TO_AZURE"), printed_rules(operator.do(entities)), strict=True)
    )
    operator.do(rules)
    publisher = Publisher("first", "events")
    world.workers.append(publisher)
    publisher.start(azure)
    wait_for_some([here], [publisher])
    publisher.move(bus)
    wait_for_some([here], [publisher])

    operator.do([creating])
    made_s = time.monotonic()
    there = world.consumer("events", subscription="billing", at=bus)

    def is_older_gone() -> bool:
        # What the metric says was so a look ago.
        return max(operator.metric("lag_seconds")) + WATCH_S < time.monotonic() - made_s

    eventually(is_older_gone, "what is older than the new subscription has come")
    wait_for_some([here, there], [publisher])
    here.stop()
    operator.do([deleting])
    wait_for_some([there], [publisher])
    publisher.stop()
    eventually(lambda: set(publisher.sent) <= {*here.seen, *there.seen}, "all are completed")
    there.stop()
    both = Counter(here.seen) & Counter(there.seen)
    assert len(both) >= SOME
    account(publisher.sent, [*here.seen, *(each for each in there.seen if each not in both)])


# -- several queues


def send_dead(azure: Bridge, queue: str, name: str) -> None:
    """Send a message, and dead-letter it."""
    with client_of(azure) as client:
        send(client, queue, ServiceBusMessage(name, message_id=name))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.dead_letter_message(message, reason="rotten")


def test_a_star_follows_what_is_made_and_its_dead_letters_have_a_route(world: World) -> None:
    """A queue that is made later is relayed when its target is there, too; until then it waits.

    The relay says so, and goes on with the others; dead letters of all come to one queue.
    """
    azure, bus, operator = world.azure, world.bus, world.operator
    routes = (
        '[[routes]]\nname = "sales"\nfrom = "azure/sales-*"\nto = "bus/*"\n'
        '[[routes]]\nname = "dead"\nfrom = "azure/sales-*/$DeadLetterQueue"\nto = "bus/dead"\n'
    )
    operator.write(Road({"all.toml": routes}, ()))
    for name in ("dead", "sales-eu"):
        operator.do([f"busbridge create queue {name} -n bus"])
    operator.do(["busbridge create queue sales-eu -n azure", "busbridge relay check all.toml"])
    send_dead(azure, "sales-eu", "dead-eu")
    operator.do(["busbridge relay all.toml --admin-port 9419"])

    with client_of(azure) as client:
        send(client, "sales-eu", ServiceBusMessage("eu", message_id="eu"))
    operator.do(["busbridge create queue sales-us -n azure"])
    send_dead(azure, "sales-us", "dead-us")
    with client_of(azure) as client:
        send(client, "sales-us", ServiceBusMessage("us", message_id="us"))
    eventually(
        lambda: any("'sales[sales-us]'" in each for each in operator.reasons()), "it is told"
    )
    assert all("'sales[sales-us]'" in each for each in operator.reasons())
    rows = operator.do(["busbridge relay check all.toml"], code=3)
    (error,) = (row["text"] for row in rows if row["result"] == "error")
    assert error == "There is no entity bus/sales-us: make it first."
    assert not operator.is_empty(["busbridge ls sales-us -n azure"], "sales-us")
    operator.do(["busbridge create queue sales-us -n bus"])

    with client_of(bus) as client:
        for queue, names in (
            ("sales-eu", {"eu"}),
            ("sales-us", {"us"}),
            ("dead", {"dead-eu", "dead-us"}),
        ):
            with client.get_queue_receiver(queue) as receiver:
                found = take(receiver, len(names))
            assert {each.message_id for each in found} == names
            if queue == "dead":
                properties = [each.application_properties or {} for each in found]
                assert {each[b"DeadLetterReason"] for each in properties} == {b"rotten"}
    eventually(lambda: not operator.reasons(), "all routes are sound")
    operator.stop_relay()
    operator.check_nothing_is_left()
