"""Two bridges, each with a RabbitMQ of its own, and `migrate run` between them."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from bridge.cli.main import main
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Release
from bridge.remote.patience import Patience
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive
from tests.acceptance.two_bridges import config
from tests.brokers.node import Node
from tests.crash.stage import DEAD, Run
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.held_wire import HeldWire
from tests.fixtures.waiting import eventually

SETTINGS: Final = {"MaxDeliveryCount": 100}
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "orders": SETTINGS,
    "sessions": {**SETTINGS, "RequiresSession": True},
    "empty": SETTINGS,
}
TOPIC: Final = {
    "Name": "events",
    "Subscriptions": [
        {
            "Name": "red",
            "Properties": SETTINGS,
            "Rules": [
                {
                    "Name": "color",
                    "Properties": {
                        "FilterType": "Sql",
                        "SqlFilter": {"SqlExpression": "color = 'red'"},
                        "Action": {"SqlExpression": "SET seen = 1"},
                    },
                }
            ],
        },
        {"Name": "all", "Properties": SETTINGS},
    ],
}
SUBSCRIPTIONS: Final = ("events/Subscriptions/red", "events/Subscriptions/all")
ALIVE: Final = ("orders", "sessions", *SUBSCRIPTIONS)
PLACES: Final = (*ALIVE, *(f"{each}{DEAD}" for each in ALIVE), "events")
"""All that is peeked at; at the topic itself are those that are scheduled."""

ORDERS: Final = 230
"""Messages of `orders`: more than two transfers take."""

EVENTS: Final = 9
SESSIONS: Final = ("one", "two", "three")
DUE: Final = datetime(2099, 1, 1, tzinfo=UTC)
SIDES: Final = ("--from", "here", "--to", "there")
TRIES_S: Final = 0.2


@dataclass(frozen=True, order=True)
class MovedMessage:
    """What a message keeps when it is moved.

    Attributes:
        delivery_count, enqueued_time_ms: `None` while it is scheduled: it gets both when it is due.
    """

    state: str
    body: bytes
    message_id: str
    session_id: str
    properties: tuple[tuple[str, str], ...]
    due_ms: int
    reason: str
    delivery_count: int | None
    enqueued_time_ms: int | None

    @classmethod
    def of(cls, message: RemoteMessage) -> MovedMessage:
        """Return it of a message that was peeked."""
        is_scheduled = message.state == "scheduled"
        properties = message.application_property_values.items()
        return cls(
            message.state,
            message.data,
            str(message.message_id),
            message.session_id or "",
            tuple(sorted((name, repr(value)) for name, value in properties)),
            message.scheduled_enqueue_time_ms or 0,
            str(message.dead_letter_reason),
            None if is_scheduled else message.delivery_count,
            None if is_scheduled else message.enqueued_time_ms,
        )


Messages = dict[str, dict[int, MovedMessage]]
"""By path and number."""


def without_scheduled(messages: Messages) -> Messages:
    """Return those that are not scheduled."""
    return {
        path: {number: each for number, each in found.items() if each.state != "scheduled"}
        for path, found in messages.items()
    }


@dataclass(frozen=True)
class MovedSide:
    """A bridge, its RabbitMQ, and the wire by which the command reaches it."""

    node: Node
    bridge: Bridge
    wire: HeldWire

    @property
    def place(self) -> str:
        """The connection string by way of the wire."""
        return self.bridge.connection_string.replace(f":{self.bridge.port}", f":{self.wire.port}")

    def namespace(self, patience_s: float = 60.0) -> RemoteNamespace:
        """Return a client that does not go by the wire."""
        text = self.bridge.connection_string
        patience = Patience(total_s=patience_s)
        return RemoteNamespace(RemoteAddress.of(text), credential_in(text), patience=patience)

    def messages(self) -> Messages:
        """Return what peeks show."""
        return asyncio.run(self.shown())

    async def shown(self) -> Messages:
        """Return the same."""
        found: Messages = {}
        async with self.namespace() as namespace:
            for path in PLACES:
                own: dict[int, MovedMessage] = {}
                start = 1
                while page := await namespace.management_of(path).peek(start, 250):
                    for each in page:
                        number = each.sequence_number or 0
                        assert number not in own, f"{path} shows {number} twice"
                        own[number] = MovedMessage.of(each)
                    start = max(own) + 1
                found[path] = own
        return found

    def marks(self) -> list[str]:
        """Return the queues that say that a run has verified all."""
        return asyncio.run(self.marked())

    async def marked(self) -> list[str]:
        """Return the same."""
        text = self.bridge.connection_string
        credential = credential_in(text)
        assert credential is not None
        async with RemoteAdministration(RemoteAddress.of(text), credential) as administration:
            names = [each.name async for each in administration.queues()]
        return [each for each in names if each.startswith("busbridge-migrate-")]


@dataclass
class MigrationStage:
    """Both sides, which are the profiles `here` and `there`, and the command.

    Attributes:
        told: what has happened, for whoever reads a failure.
        options: those that each run has.
    """

    source: MovedSide
    target: MovedSide
    folder: Path
    chance: random.Random = field(default_factory=random.Random)
    told: list[str] = field(default_factory=list)
    options: Sequence[str] = ()

    def start(self) -> Run:
        """Start `migrate run` in a process of its own."""
        return self._start("run", *SIDES, "--still", "0.1", "--yes", *self.options)

    def end(self, run: Run) -> Said:
        """Return what a command has said when it has ended."""
        said = run.end()
        self.told.append(f"{said.code}: {' '.join(said.err.strip().splitlines()[-3:])}")
        return said

    def differences(self) -> dict[str, dict[int, list[str]]]:
        """Return what `migrate verify` finds: which sides have a message, by path and number."""
        said = self.end(self._start("verify", *SIDES))
        rows = [each for each in said.rows if each["part"] == "difference"]
        assert said.code == (3 if rows else 0), said
        found: dict[str, dict[int, list[str]]] = {}
        for row in rows:
            path = row["entity"] + (DEAD if row["queue"] == "dead letters" else "")
            found.setdefault(path, {})[row["number"]] = row["is_at"]
        return found

    def _start(self, *words: str) -> Run:
        at = len(list(self.folder.glob("run-*.out")))
        out, err = self.folder / f"run-{at}.out", self.folder / f"run-{at}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "bridge.cli.command", "migrate", *words],
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip
        return Run(process, out, err)


@contextmanager
def begun_stage(
    brokers: Sequence[Broker], folder: Path, monkeypatch: pytest.MonkeyPatch, target: Path
) -> Iterator[MigrationStage]:
    """Start two bridges, each with a RabbitMQ of its own; the source has its entities.

    Args:
        target: the entities of the target.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)
    configs = config(folder, "source", QUEUES, TOPIC), target
    with ExitStack() as ends:
        sides = []
        for broker, entities in zip(brokers, configs, strict=True):
            assert broker.node is not None
            if not broker.node.is_running:
                broker.node.start()
            vhost = ends.enter_context(broker.fresh_vhost())
            bridge = bridge_of(broker, vhost, config=entities)
            ends.callback(bridge.kill)
            bridge.start()
            wire = HeldWire(bridge.port)
            ends.callback(wire.close)
            sides.append(MovedSide(broker.node, bridge, wire))
        for name, side in zip(("here", "there"), sides, strict=True):
            monkeypatch.setenv(name.upper(), side.place)
            assert main(["profile", "add", name, "--variable", name.upper()]) == 0
        yield MigrationStage(sides[0], sides[1], folder)


class EarlyReceiver:
    """Tries to receive at the target all the time, until it gets a message, which it releases.

    Attributes:
        early: messages that it got before the run had verified all.
    """

    def __init__(self, stage: MigrationStage) -> None:
        self.early: list[str] = []
        self._stage = stage
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> EarlyReceiver:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(RemoteError):
                async with self._stage.target.namespace(0.0) as namespace:
                    while not self._is_over.is_set():
                        for path in ("orders", f"orders{DEAD}", *SUBSCRIPTIONS):
                            await self._try(namespace, path)
            await asyncio.sleep(TRIES_S)

    async def _try(self, namespace: RemoteNamespace, path: str) -> None:
        receiver = await namespace.receiver(path, once=True)
        try:
            for each in await receiver.receive(1, TRIES_S):
                await self._judge(path, each.message)
                await receiver.settle(each, Release())
                self._is_over.set()
        finally:
            await receiver.close()

    async def _judge(self, path: str, message: RemoteMessage) -> None:
        """See that all was verified before: the mark is there, or even the run is over."""
        if not await self._stage.target.marked():
            found = await self._stage.source.shown()
            if found != without_scheduled(found):
                self.early.append(f"{path}: {message.sequence_number}")


# -- what is there before


def fill(bridge: Bridge) -> None:
    """Bring messages into all states, with counts."""
    with client_of(bridge) as client:
        _fill_orders(client)
        _fill_sessions(client)
        _fill_events(client)


def _message(name: str, at: int, **options: Any) -> ServiceBusMessage:
    color = "red" if at % 3 else "blue"
    return ServiceBusMessage(
        f"{name} {at}",
        message_id=f"{name}-{at}",
        application_properties={"color": color, "at": at},
        **options,
    )


def _schedule(client: ServiceBusClient, sender: Any, name: str) -> None:
    sender.schedule_messages([_message(f"{name} later", at) for at in range(2)], DUE)
    sender.schedule_messages(_message(f"{name} then", 0), DUE + timedelta(days=1))


def _spread(receiver: Any, found: Sequence[Any]) -> None:
    """Give back some that were received, defer some, and make some dead letters."""
    for at, each in enumerate(found):
        match at % 4:
            case 0:
                receiver.defer_message(each)
            case 1:
                receiver.dead_letter_message(each, reason="bad", error_description=f"at {at}")
            case 2:
                receiver.complete_message(each)
            case _:
                receiver.abandon_message(each)


def _fill_orders(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([_message("order", at) for at in range(ORDERS)])
        _schedule(client, sender, "order")
        sender.send_messages(_message("order", ORDERS))
    with client.get_queue_receiver("orders") as receiver:
        _spread(receiver, receive(receiver, 16))
        for each in receive(receiver, 5):  # the first ones twice
            receiver.abandon_message(each)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        dead.defer_message(receive(dead)[0])


def _fill_sessions(client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender:
        for at in range(12):
            sender.send_messages(_message("step", at, session_id=SESSIONS[at % 3]))
        sender.schedule_messages(_message("step later", 0, session_id=SESSIONS[0]), DUE)
    for session_id in SESSIONS[:2]:
        with client.get_queue_receiver("sessions", session_id=session_id) as receiver:
            _spread(receiver, receive(receiver, 4))


def _fill_events(client: ServiceBusClient) -> None:
    with client.get_topic_sender("events") as sender:
        sender.send_messages([_message("event", at) for at in range(EVENTS)])
        _schedule(client, sender, "event")
    for name in ("red", "all"):
        with client.get_subscription_receiver("events", name) as receiver:
            _spread(receiver, receive(receiver, 5))


def await_filled(side: MovedSide) -> Messages:
    """Return all there is when it is there."""

    def is_there() -> bool:
        found = side.messages()
        return len(found["orders"]) + len(found[f"orders{DEAD}"]) == ORDERS

    eventually(is_there, "all is at the source")
    return side.messages()
