"""`busbridge bench`: what it measures and counts, and that nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.management import ServiceBusAdministrationClient

from bridge.commands import bench_works
from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.connecting import without_flag
from tests.acceptance.sdk import client_of
from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker
from tests.fixtures.terminal import INTERRUPT, terminal
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, Any] = {}

PREFIX = "busbridge-bench-"
SHORT = ("--messages", "60", "--rounds", "2", "--yes")
FIGURES = ["send", "in-flight", "batches", "receive", "schedule", "cancel", "sessions"]
BESIDE = FIGURES[:4]


@pytest.fixture
def plain(bridge: Bridge, make: Make) -> Busbridge:
    """The command."""
    return make(bridge.connection_string)


@pytest.fixture
def beside(bridge: Bridge) -> tuple[str, str]:
    """The option that has plain pika measured, too."""
    return ("--rabbitmq-url", bridge.amqp_url)


@pytest.fixture(autouse=True)
def nothing_stays(
    bridge: Bridge, broker: Broker, module_vhost: str, admin: ServiceBusAdministrationClient
) -> Iterator[None]:
    """Neither an entity nor a queue of RabbitMQ is there afterwards."""
    yield
    assert [each.name for each in admin.list_queues() if each.name.startswith(PREFIX)] == []
    eventually(lambda: left(broker, module_vhost) == [], "RabbitMQ has no queue of a bench")


def left(broker: Broker, vhost: str) -> list[str]:
    """Return RabbitMQ's queues whose names say that a bench has made them."""
    found = broker.management("GET", f"/api/queues/{vhost}?columns=name")
    return [each["name"] for each in found if each["name"].startswith(PREFIX)]


def made(admin: ServiceBusAdministrationClient) -> str:
    """Wait for the queue of a bench that runs; return its name."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = [each.name for each in admin.list_queues() if each.name.startswith(PREFIX)]
        return any(not each.endswith("-sessions") for each in found)

    eventually(is_there, "the bench has made its queue")
    return min(found, key=len)


def test_each_work_is_measured_beside_plain_pika_where_that_can_do_it(
    plain: Busbridge, beside: tuple[str, str]
) -> None:
    """In rounds, with the median and the spread; nothing is missed, and no password is shown."""
    said = plain.done("bench", *SHORT, *beside)
    assert "MISSED" not in said.err
    assert "guest:guest" not in said.out + said.err
    assert [row["work"] for row in said.rows] == FIGURES
    for row in said.rows:
        assert len(row["rounds"]) == 2
        assert 0 < row["lowest"] <= row["median"] <= row["highest"]
        assert (row["lowest"], row["highest"]) == (min(row["rounds"]), max(row["rounds"]))
        is_beside = row["work"] in BESIDE
        assert len(row["plain_pika_rounds"]) == (2 if is_beside else 0)
        if is_beside:
            assert row["ratio"] == pytest.approx(row["median"] / row["plain_pika"], abs=0.01)
        else:
            assert (row["plain_pika"], row["ratio"]) == (None, None)


def test_a_round_ends_after_its_time(plain: Busbridge) -> None:
    """However many messages were asked for; what was sent is accounted for all the same."""
    words = ("--work", "in-flight", "--seconds", "0.3", "--messages", "1000000", "--rounds", "1")
    row = plain.done("bench", *words, "--size", "0", "--yes").row
    assert 0 < row["median"] < 1_000_000 / 0.3


def test_at_a_terminal_it_asks_and_shows_a_table(
    plain: Busbridge, beside: tuple[str, str], admin: ServiceBusAdministrationClient
) -> None:
    """By a no nothing is made."""
    words = ("bench", "--work", "send", "--messages", "20", "--rounds", "1", *beside)
    with terminal(plain.line(*words)) as asked:
        asked.awaits("[y/N]")
        assert not [each.name for each in admin.list_queues() if each.name.startswith(PREFIX)]
        asked.type("n\n")
        assert asked.code() == 1
    with terminal(plain.line(*words)) as shown:
        shown.awaits("[y/N]")
        shown.type("y\n")
        assert shown.code() == 0
    (head,) = (line for line in shown.lines if line.split()[:1] == ["work"])
    assert "plain pika" in head
    assert "ratio" in head
    assert sum(line.split()[:1] == ["send"] for line in shown.lines) == 1
    assert "guest:guest" not in shown.text


@pytest.mark.parametrize(("times", "shown_before"), [(1, ""), (1, "measuring"), (2, "measuring")])
def test_an_interruption_takes_away_what_it_has_made(
    plain: Busbridge,
    beside: tuple[str, str],
    admin: ServiceBusAdministrationClient,
    times: int,
    shown_before: str,
) -> None:
    """When and however often somebody presses Ctrl-C; the fixture sees that nothing is left."""
    words = ("--messages", "1000000", "--seconds", "600", "--yes", "--work", "send")
    with terminal(plain.line("bench", *words, *beside)) as shown:
        made(admin)
        shown.awaits(shown_before)
        for _ in range(times):
            shown.type(INTERRUPT)
        assert shown.code() == 4
    if times == 1:
        assert "Stopped. The same command measures all again" in shown.text


def test_a_message_that_is_missing_and_one_that_is_strange_fail_the_run(
    bridge: Bridge,
    plain: Busbridge,
    admin: ServiceBusAdministrationClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody takes one from the queue and sends another; the account names both."""
    monkeypatch.setattr(bench_works, "COME_S", 3.0)
    taken: list[object] = []

    def intrude() -> None:
        queue, mode = made(admin), ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client_of(bridge) as client:
            with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
                taken.extend(receiver.receive_messages(1, max_wait_time=120))
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="strange"))

    intruder = threading.Thread(target=intrude)
    intruder.start()
    words = ("--work", "send", "--messages", "1000000", "--seconds", "6", "--rounds", "1")
    said = plain("bench", *words, "--yes")
    intruder.join(120)
    assert len(taken) == 1
    assert said.code == 1
    assert "MISSED: PLACE, send: missing: 1 of " in said.err
    assert "MISSED: PLACE, send: came and not sent by this round: 1\n" in said.err


def test_azure_is_said_to_cost_before_anything_is_made(bridge: Bridge, make: Make) -> None:
    """The bridge plays it, by its name, over TLS."""
    here = f"localhost:{bridge.port}"
    azure = make(without_flag(bridge).replace(here, "bus.servicebus.windows.net"))
    azure.options = ("--ca-file", str(bridge.ca), "--custom-endpoint-address", here)
    said = azure.done("bench", "--work", "send", *SHORT)
    assert said.err.startswith("'PLACE' is Azure's: ")
    assert [row["work"] for row in said.rows] == ["send"]


def test_a_rabbitmq_that_refuses_the_login_is_one_sentence(
    bridge: Bridge, plain: Busbridge
) -> None:
    """Without its password; the namespace's queues are deleted."""
    url = bridge.amqp_url.replace("guest:guest@", "guest:hidden@")
    assert "hidden" in url
    said = plain("bench", "--work", "send", *SHORT, "--rabbitmq-url", url)
    assert said.code == 1
    assert said.err.startswith("busbridge: RabbitMQ: amqp://")
    assert said.err.count("\n") == 1
    assert "hidden" not in said.err


def test_what_has_its_name_already_is_left_alone(
    plain: Busbridge, admin: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is somebody else's, with its messages."""
    queue = f"{PREFIX}taken"
    monkeypatch.setattr("secrets.token_hex", lambda _: "taken")
    plain.done("create", "queue", queue)
    plain.done("send", queue, "m")
    said = plain("bench", *SHORT)
    assert said.code == 1
    assert queue in said.err
    assert plain.done("ls", queue).row["active"] == 1
    admin.delete_queue(queue)
