"""`busbridge policies` against a RabbitMQ that runs, by both of its ways in."""

from __future__ import annotations

import json
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pika
import pytest

from bridge.cli.main import main
from bridge.model import entity as model
from bridge.topology import definitions
from bridge.topology.resources import Topology
from policies.writers.definitions import document
from tests.fixtures.broker import Broker
from tests.fixtures.terminal import terminal
from tests.fixtures.waiting import eventually
from tests.integration.declared import count

pytestmark = pytest.mark.long

ORDERS = model.Queue(name="orders", default_message_time_to_live_ms=60_000)
INVOICES = model.Queue(name="invoices", max_delivery_count=3)
EVENTS = model.Topic(
    name="events", subscriptions=(model.Subscription(topic="events", name="audit"),)
)


class Command:
    """The command line, on one virtual host."""

    def __init__(
        self, broker: Broker, vhost: str, folder: Path, way: str, output: pytest.CaptureFixture[str]
    ) -> None:
        self.broker = broker
        self.vhost = vhost
        self._folder = folder
        self._output = output
        if way == "rabbitmqctl" and broker.node is not None:
            self._where = ["--rabbitmqctl", str(broker.node.write_rabbitmqctl(folder))]
        else:
            self._where = ["--management-url", broker.management_url]

    def file(self, *queues: model.Queue, topics: tuple[model.Topic, ...] = ()) -> str:
        """An input with these entities."""
        namespace = model.Namespace(queues=queues, topics=topics)
        topology = Topology(parameters=definitions.parameters(namespace, "any"))
        path = self._folder / "namespace.json"
        path.write_text(json.dumps({"rabbitmq_version": "4.0.5", **document(topology, "any")}))
        return str(path)

    def __call__(self, action: str, *words: str) -> tuple[int, str]:
        """Run an action; return its exit code and what it printed."""
        code = self.elsewhere(self.vhost, action, *words)
        return code, self._output.readouterr().out

    @property
    def words(self) -> list[str]:
        """What says which broker."""
        return [*self._where, "--vhost", self.vhost]

    def elsewhere(self, vhost: str, *words: str) -> int:
        """Run an action on a virtual host; return its exit code."""
        return main(["policies", *words, *self._where, "--vhost", vhost])


WAYS = ["management", pytest.param("rabbitmqctl", marks=pytest.mark.soak)]
"""Each call of `rabbitmqctl` starts an Erlang: one short test of them is enough at a time."""


@pytest.fixture(params=WAYS)
def busbridge(
    broker: Broker,
    vhost: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Command]:
    """The command by one of its ways."""
    yield Command(broker, vhost, tmp_path, request.param, capsys)
    for row in broker.management("GET", "/api/global-parameters"):
        if vhost in row["name"]:
            with suppress(HTTPError):
                name = urllib.parse.quote(row["name"], safe="")
                broker.management("DELETE", f"/api/global-parameters/{name}")


def test_a_namespace_from_nothing_to_nothing(busbridge: Command) -> None:
    """Apply, apply again, check, change, adopt, remove: each says what it does, and does it."""
    file = busbridge.file(ORDERS, INVOICES, topics=(EVENTS,))
    assert busbridge("check", file)[0] == 4
    code, said = busbridge("apply", file)
    assert (code, said.splitlines()[-1][:8]) == (0, "Applied:")
    again = (0, "Nothing to change.\nApplied: 0 steps.\n")
    assert busbridge("apply", file) == again
    assert busbridge("check", file) == (0, "Nothing to change.\n")

    changed = model.Queue(
        name="orders",
        default_message_time_to_live_ms=30_000,
        dead_lettering_on_message_expiration=True,
    )
    code, said = busbridge("plan", busbridge.file(changed))
    assert code == 0
    assert "messages that are queued already keep the TTL with which they came" in said
    assert "+ binding orders/$dlx -> orders/$deadletterqueue" in said
    assert "- binding orders/$dlx -> $sb/sink" in said
    assert "invoices" not in said
    assert busbridge("apply", busbridge.file(changed))[0] == 0
    assert busbridge("check", busbridge.file(changed, INVOICES, topics=(EVENTS,)))[0] == 0

    _, adopted = busbridge("adopt")
    path = Path(busbridge.file()).with_name("adopted.json")
    path.write_text(adopted)
    assert busbridge("check", str(path), "--prune") == (0, "Nothing to change.\n")
    _, config = busbridge("adopt", "--as", "config")
    path.write_text(config)
    assert busbridge("check", str(path), "--prune") == (0, "Nothing to change.\n")

    code, said = busbridge("remove")
    assert (code, "destructive" in said) == (5, True)
    assert busbridge("remove", "--allow")[0] == 0
    assert busbridge("remove") == (0, "Nothing to change.\nRemoved: 0 objects.\n")


def test_rabbitmqctl_is_another_way(
    broker: Broker, vhost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change with deletions; each way finds as defined what the other has made.

    A parameter of somebody else's that nests without end stops neither.
    """
    strange = "/api/global-parameters/nests-without-end"
    broker.management("PUT", strange, b'{"value": %s}' % (b"[" * 20_000 + b"]" * 20_000))
    http = Command(broker, vhost, tmp_path, "management", capsys)
    console = Command(broker, vhost, tmp_path, "rabbitmqctl", capsys)
    expired = replace(ORDERS, dead_lettering_on_message_expiration=True, max_delivery_count=4)
    try:
        applied, _ = http("apply", http.file(ORDERS))
        file = console.file(expired)
        code, said = console("apply", file, "--allow")
    finally:
        broker.management("DELETE", strange)
    assert (applied, code) == (0, 0), said
    assert "- binding orders/$dlx -> $sb/sink" in said
    assert http("check", file) == (0, "Nothing to change.\n")
    assert http("remove", "--allow")[0] == 0


@pytest.mark.parametrize("way", WAYS)
def test_what_was_applied_outlasts_a_kill(
    start_broker: Callable[[], Broker],
    tmp_path: Path,
    way: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each queue takes messages when RabbitMQ was killed right after it was declared.

    And without its plugin a shovel is a named error with what to do; all else is there.
    """
    broker = start_broker()
    assert broker.node is not None
    with broker.fresh_vhost() as vhost:
        busbridge = Command(broker, vhost, tmp_path, way, capsys)
        assert busbridge("apply", busbridge.file(INVOICES), "--flavour", "plain")[0] == 0
        broker.node.kill()
        broker.node.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in ("invoices", "invoices/$deadletterqueue"):
                channel.basic_publish("", queue, b"kept", mandatory=True)
                assert channel.basic_get(queue)[2] == b"kept"
        forwarding = busbridge.file(model.Queue(name="a", forward_to="b"), model.Queue(name="b"))
        words = ("--flavour", "plain", "--accept-losses", "*")
        assert busbridge.elsewhere(vhost, "apply", forwarding, *words) == 1
        assert "rabbitmq-plugins enable rabbitmq_shovel" in capsys.readouterr().err
        there = {row["name"] for row in broker.management("GET", f"/api/queues/{vhost}")}
        assert {"a", "b"} <= there


def test_bridges_that_run_are_told(
    busbridge: Command, pika_connection: pika.BlockingConnection
) -> None:
    """A message on the exchange where they listen, when something has changed, and only then."""
    assert busbridge("apply", busbridge.file(ORDERS))[0] == 0
    channel = pika_connection.channel()
    heard = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(heard, "$sb/events")
    assert busbridge("apply", busbridge.file(ORDERS))[0] == 0
    assert busbridge("apply", busbridge.file(INVOICES))[0] == 0
    eventually(lambda: count(channel, heard) == 1)
    assert channel.basic_get(heard, auto_ack=True)[2] == b""


def test_a_virtual_host_keeps_what_its_owner_said_of_it(broker: Broker, busbridge: Command) -> None:
    """Its description, its tags and the type of its queues."""
    said = {"description": "orders of the shop", "tags": "shop", "default_queue_type": "quorum"}
    path = f"/api/vhosts/{busbridge.vhost}"
    broker.management("PUT", path, said)
    before = broker.management("GET", path)
    assert busbridge("apply", busbridge.file(INVOICES))[0] == 0
    after = broker.management("GET", path)
    for name in ("description", "tags", "default_queue_type", "metadata"):
        assert after.get(name) == before.get(name), name


def test_an_empty_virtual_host_is_adopted_and_a_missing_one_is_named(
    busbridge: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is begun in a virtual host that is not there."""
    code, adopted = busbridge("adopt")
    assert (code, [*json.loads(adopted)]) == (
        0,
        ["rabbitmq_version", "vhosts", "global_parameters"],
    )
    for action in (("plan", busbridge.file(ORDERS)), ("apply", busbridge.file(ORDERS)), ("adopt",)):
        assert busbridge.elsewhere("nowhere", *action) == 1
        assert "has no virtual host 'nowhere'" in capsys.readouterr().err


def test_messages_are_safe_without_a_word_of_the_user(
    busbridge: Command, pika_connection: pika.BlockingConnection
) -> None:
    """A plan that would delete a queue is refused as a whole, unless `--allow` is given."""
    assert busbridge("apply", busbridge.file(ORDERS, INVOICES))[0] == 0
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("invoices/$active", "", b"kept", mandatory=True)
    slower = model.Queue(name="orders", max_delivery_count=2)
    code, said = busbridge("apply", busbridge.file(slower), "--prune")
    assert code == 5
    assert "- queue invoices (quorum) (destructive): its messages go with it" in said
    assert count(channel, "invoices") == 1
    assert busbridge("check", busbridge.file(ORDERS, INVOICES))[0] == 0
    assert busbridge("apply", busbridge.file(slower), "--prune", "--allow")[0] == 0
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        count(channel, "invoices")


def test_somebody_elses_objects_are_named_and_left_alone(
    broker: Broker, busbridge: Command, pika_connection: pika.BlockingConnection
) -> None:
    """A policy that overrides ours, and a queue that cannot be changed, are said by name."""
    channel = pika_connection.channel()
    channel.queue_declare("orders", durable=True)
    code, said = busbridge("apply", busbridge.file(ORDERS))
    assert code == 5
    assert "! queue orders (quorum): " in said
    assert "x-queue-type is 'classic', not 'quorum'" in said
    channel.queue_delete("orders")

    theirs = {
        "pattern": "^orders$",
        "definition": {"max-length": 5},
        "priority": 50,
        "apply-to": "all",
    }
    broker.management("PUT", f"/api/policies/{busbridge.vhost}/theirs", theirs)
    assert busbridge("apply", busbridge.file(ORDERS))[0] == 0
    code, said = busbridge("plan", busbridge.file(ORDERS), "--queues")
    assert "orders: busbridge.limit-9.size-1073741824.ttl-60000 (priority 51)" in said

    broker.management("PUT", f"/api/policies/{busbridge.vhost}/theirs", {**theirs, "priority": 99})
    code, said = busbridge("check", busbridge.file(ORDERS))
    assert code == 4
    assert "orders: theirs (priority 99) instead of busbridge." in said
    assert busbridge("apply", busbridge.file(ORDERS))[0] == 5
    code, said = busbridge("apply", busbridge.file(ORDERS), "--priority", "100", "--allow")
    assert code == 0, said
    assert busbridge("check", busbridge.file(ORDERS), "--priority", "100")[0] == 0
    assert busbridge("remove", "--allow")[0] == 0
    policies = broker.management("GET", f"/api/policies/{busbridge.vhost}")
    assert [row["name"] for row in policies] == ["theirs"]


def test_a_terminal_shows_how_far_many_steps_are(broker: Broker, busbridge: Command) -> None:
    """A bar that is gone at the end; the plan above has a row for each entity."""
    file = busbridge.file(*(model.Queue(name=f"queue-{number}") for number in range(40)))
    line = ["-m", "bridge.cli.main", "policies", "apply", file, "--yes", *busbridge.words]
    with terminal([sys.executable, *line]) as shown:
        assert shown.code() == 0
    assert re.search(r"Applying \[[#.]{30}\] [1-9]\d*/\d+", shown.text)
    assert not any("Applying [" in each for each in shown.lines)
    assert shown.lines[-2].startswith("Applied: ")
    heads = [number for number, each in enumerate(shown.lines) if each.startswith("entity ")]
    assert [each.split()[1] for each in shown.lines[heads[0] + 2 :][:40]] == ["new"] * 40
    assert busbridge("check", file) == (0, "Nothing to change.\n")


def test_plain_rabbitmq_is_planned_applied_and_checked(
    busbridge: Command, pika_connection: pika.BlockingConnection
) -> None:
    """The plain flavour goes the same ways, and dead-letters by itself."""
    file = busbridge.file(INVOICES)
    assert busbridge("apply", file, "--flavour", "plain")[0] == 0
    assert busbridge("check", file, "--flavour", "plain") == (0, "Nothing to change.\n")
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("invoices", "", b"wrong", mandatory=True)
    method, _, _ = channel.basic_get("invoices")
    channel.basic_reject(method.delivery_tag, requeue=False)
    eventually(lambda: count(channel, "invoices/$deadletterqueue") == 1)
    idle = model.Queue(name="invoices", max_delivery_count=3, auto_delete_on_idle_ms=300_000)
    code, said = busbridge("apply", busbridge.file(idle), "--flavour", "plain")
    assert code == 5
    assert "expires deletes a queue that is unused for so long, with its messages" in said


def test_errors_are_said_in_a_sentence(
    broker: Broker, busbridge: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 for the input, 1 for the broker, 3 for what is lost."""
    missing = str(tmp_path / "missing.json")
    assert main(["policies", "generate", missing, "--to", "bash"]) == 2
    assert "missing.json" in capsys.readouterr().err
    file = busbridge.file(model.Queue(name="orders", requires_session=True))
    nowhere = ["--management-url", "http://guest:guest@127.0.0.1:9"]
    assert main(["policies", "plan", file, *nowhere]) == 1
    several = ["--management-url", f"http://127.0.0.1:9, {broker.management_url}"]
    assert main(["policies", "plan", file, *several, "--vhost", busbridge.vhost]) == 0
    capsys.readouterr()
    assert main(["policies", "plan", file, *nowhere]) == 1
    assert "busbridge: " in capsys.readouterr().err
    assert main(["policies", "plan", file, "--rabbitmqctl", "/no/such/program"]) == 1
    assert "/no/such/program cannot be run" in capsys.readouterr().err
    words = ["generate", file, "--to", "bash", "--flavour", "plain", "--strict"]
    assert main(["policies", *words]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert "RequiresSession" in output.err


def test_a_virtual_host_of_its_own_has_one_policy_for_the_commonest_settings(
    busbridge: Command, broker: Broker
) -> None:
    """Said once: later entities need no policy, and a quorum queue of a user is left out."""

    def patterns() -> dict[str, str]:
        rows = broker.management("GET", f"/api/policies/{busbridge.vhost}")
        return {row["name"]: row["pattern"] for row in rows if row["priority"] < 1_000}

    queues = [model.Queue(name=name) for name in ("a", "b")]
    assert busbridge("apply", busbridge.file(*queues, INVOICES))[0] == 0
    assert set(patterns()) == {
        "busbridge.limit-9.size-1073741824",
        "busbridge.limit-2.size-1073741824",
    }
    assert busbridge("apply", busbridge.file(*queues), "--own-vhost")[0] == 0
    assert patterns() == {
        "busbridge.entities": r"^(?:\$amq\.)?[^$A-Z]+(?:/\$shard/[0-9]+)?$",
        "busbridge.limit-2.size-1073741824": "^invoices$",
    }
    assert busbridge("check", busbridge.file(*queues)) == (0, "Nothing to change.\n")

    before = patterns()
    code, said = busbridge("plan", busbridge.file(model.Queue(name="c")))
    assert (code, "busbridge.limit" in said, "busbridge.entities" in said) == (0, False, False)
    assert busbridge("apply", busbridge.file(model.Queue(name="c")))[0] == 0
    assert patterns() == before

    theirs = f"/api/queues/{busbridge.vhost}/theirs"
    made = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    broker.management("PUT", theirs, made)
    assert busbridge("check", busbridge.file(*queues))[0] == 4
    assert busbridge("apply", busbridge.file(*queues))[0] == 0
    assert "(?!theirs$)" in patterns()["busbridge.entities"]
    assert busbridge("check", busbridge.file(*queues)) == (0, "Nothing to change.\n")
