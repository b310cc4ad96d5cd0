"""RabbitMQ alone, applied to a RabbitMQ that runs: few policies, and what was there before."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from bridge.model import entity as model
from bridge.topology.names import bridge_queue
from bridge.topology.parts import bucket_queue
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually
from tests.integration.declared import count
from tests.integration.test_policies_command import WAYS, Command

PLAIN = ("--flavour", "plain")
QUEUES_OF_A_DEPLOYMENT = 300
CHANGED_WITHIN_S = 30.0


@pytest.fixture
def command(
    broker: Broker, vhost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command, by the management API."""
    return Command(broker, vhost, tmp_path, "management", capsys)


def policies_of(broker: Broker, vhost: str) -> dict[str, dict[str, object]]:
    """Name and definition of each policy of a virtual host."""
    rows = broker.management("GET", f"/api/policies/{vhost}")
    return {row["name"]: row["definition"] for row in rows}


def test_a_queue_that_was_there_dead_letters_by_a_policy_of_its_own(
    command: Command, broker: Broker, vhost: str, pika_connection: pika.BlockingConnection
) -> None:
    """It stays with its messages, and a new one beside it has arguments and a shared policy."""
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("old", durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_publish("", "old", b"was there", mandatory=True)
    file = command.file(model.Queue(name="old"), model.Queue(name="New"))

    assert command("apply", file, *PLAIN)[0] == 0
    assert command("check", file, *PLAIN) == (0, "Nothing to change.\n")

    found = policies_of(broker, vhost)
    assert "dead-letter-exchange" in found["busbridge.old"]
    assert [name for name, each in found.items() if "dead-letter-exchange" in each] == [
        "busbridge.old"
    ]
    channel.basic_publish("New", "", b"is new", mandatory=True)
    for queue, body in (("old", b"was there"), ("New", b"is new")):
        method, _, got = channel.basic_get(queue)
        assert got == body
        channel.basic_reject(method.delivery_tag, requeue=False)
        eventually(lambda q=queue: count(channel, f"{q}/$deadletterqueue") == 1)


def test_names_of_another_case_are_refused_before_anything_is_made(
    command: Command, broker: Broker, vhost: str
) -> None:
    """A namespace that was made with lower case is continued with lower case."""
    file = command.file(model.Queue(name="Orders"))
    assert command("apply", file, *PLAIN, "--names", "lower")[0] == 0
    before = broker.management("GET", f"/api/queues/{vhost}?columns=name")

    assert command("apply", file, *PLAIN)[0] == 2
    assert command("check", file, *PLAIN, "--names", "lower")[0] == 0
    assert broker.management("GET", f"/api/queues/{vhost}?columns=name") == before


def test_a_virtual_host_is_of_one_flavour(
    command: Command, broker: Broker, vhost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one is refused with the steps to take, and those lead there."""
    file = command.file(model.Queue(name="orders"))
    assert command("apply", file, *PLAIN)[0] == 0
    capsys.readouterr()

    for action in ("apply", "plan", "check"):
        assert command.elsewhere(vhost, action, file) == 5
        said = capsys.readouterr().err
        assert f"   2. busbridge policies remove --allow --vhost {vhost}\n" in said
        assert f"   3. busbridge policies apply INPUT --vhost {vhost}" in said
    assert command("remove", "--allow")[0] == 0
    assert command("apply", file)[0] == 0
    assert command("apply", file, *PLAIN)[0] == 5
    assert command("remove", "--allow")[0] == 0


def test_a_catch_all_takes_no_dead_letters_and_fills_no_sink(
    command: Command, broker: Broker, vhost: str, pika_connection: pika.BlockingConnection
) -> None:
    """A user's policy on all queues."""
    theirs = {
        "pattern": ".*",
        "apply-to": "queues",
        "definition": {"message-ttl": 1, "max-length": 5},
        "priority": 40,
    }
    broker.management("PUT", f"/api/policies/{vhost}/theirs", theirs)
    file = command.file(model.Queue(name="orders"))
    assert command("apply", file, *PLAIN)[0] == 0
    channel = pika_connection.channel()
    channel.confirm_delivery()
    for number in range(8):
        channel.basic_publish("orders", "", b"%d" % number, mandatory=True)
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.basic_publish("", "$sb/sink", b"dropped")

    eventually(lambda: count(channel, "orders/$deadletterqueue") == 8)

    def in_force() -> dict[str, object]:
        rows = broker.management("GET", f"/api/queues/{vhost}")
        return {row["name"]: row.get("policy") for row in rows}

    eventually(lambda: in_force()["$sb/sink"] == "busbridge.sink")
    eventually(lambda: in_force()["orders/$deadletterqueue"] == "busbridge.dead-letters")
    assert count(channel, "$sb/sink") == 0
    time.sleep(0.2)  # a TTL of theirs, of one millisecond, is long past
    assert count(channel, "orders/$deadletterqueue") == 8


def test_a_catch_all_limits_no_queue_of_the_bridge_and_stops_no_apply(
    command: Command, broker: Broker, vhost: str, pika_connection: pika.BlockingConnection
) -> None:
    """Inboxes, deferred and scheduled messages, journals: each has a policy that says no more than
    its arguments, and so do a bucket and a queue of its own that the bridge makes later."""
    theirs = {
        "pattern": ".*",
        "apply-to": "all",
        "definition": {"message-ttl": 1, "max-length": 5, "max-length-bytes": 500},
        "priority": 40,
    }
    broker.management("PUT", f"/api/policies/{vhost}/theirs", theirs)
    file = command.file(model.Queue(name="orders"))
    assert command("apply", file)[0] == 0
    assert command("check", file) == (0, "Nothing to change.\n")
    bucket = bucket_queue("orders", 0, 1)
    channel = pika_connection.channel()
    channel.queue_declare(bucket.name, durable=True, arguments=dict(bucket.arguments))
    questions = bridge_queue(b"bridge")
    channel.queue_declare(questions, exclusive=True, auto_delete=True)

    def in_force() -> dict[str, object]:
        rows = broker.management("GET", f"/api/queues/{vhost}")
        return {row["name"]: row.get("policy") for row in rows}

    eventually(lambda: all(str(each).startswith("busbridge.") for each in in_force().values()))
    assert in_force()["orders/$journal"] == "busbridge.journals"
    assert in_force()[bucket.name] == in_force()["orders/$inbox"] == "busbridge.inner"
    for _ in range(8):
        channel.basic_publish("", questions, b"a question")
    eventually(lambda: count(channel, questions) == 8)
    assert command("remove", "--allow")[0] == 0


@pytest.mark.parametrize("way", WAYS)
def test_what_forwards_is_moved_by_rabbitmq_itself(
    broker: Broker,
    pika_connection: pika.BlockingConnection,
    vhost: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    """By a shovel without a login; a change of the target, and its end, are carried out."""
    command = Command(broker, vhost, tmp_path, way, capsys)
    channel = pika_connection.channel()
    channel.confirm_delivery()
    targets = [model.Queue(name="one"), model.Queue(name="two")]
    for target in ("one", "two", ""):
        file = command.file(*targets, model.Queue(name="Old/2024", forward_to=target))
        assert command("apply", file, *PLAIN, "--accept-losses", "*:ForwardTo")[0] == 0
        assert command("check", file, *PLAIN)[0] == 0
        channel.basic_publish("Old/2024", "", target.encode(), mandatory=True)
        moved = target or "Old/2024"
        eventually(lambda queue=moved: count(channel, queue) == 1)
    assert broker.management("GET", f"/api/parameters/shovel/{vhost}") == []


@pytest.mark.soak
def test_a_change_of_300_queues_takes_seconds(command: Command) -> None:
    """A policy is one for equal settings: a policy for each queue would take minutes."""
    for ttl_min in (10, 20):
        queues = [
            model.Queue(
                name=f"orders-{number:04}",
                default_message_time_to_live_ms=(ttl_min + number % 3) * model.MINUTE_MS,
            )
            for number in range(QUEUES_OF_A_DEPLOYMENT)
        ]
        file = command.file(*queues)
        begin = time.monotonic()
        assert command("apply", file, *PLAIN)[0] == 0
        took_s = time.monotonic() - begin

    assert took_s < CHANGED_WITHIN_S
