"""Every writer's output, loaded into a real RabbitMQ and read back; then seen to work."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from bridge.model import entity as model
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from bridge.topology.policy import winners
from bridge.topology.resources import Exchange, Topology, Value
from policies.live import topology_of
from policies.writers import WRITERS, Wanted, rabbitmqadmin
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually
from tests.integration.declared import count
from tests.integration.reading import (
    apply_kubernetes,
    apply_terraform,
    run_rabbitmqadmin_2,
    run_rabbitmqctl,
)
from tests.unit.policies.windows import Cmd
from tests.unit.policies.windows import powershell as run_powershell

pytestmark = pytest.mark.long

NAMESPACE = model.Namespace(
    tier=model.Tier.BASIC,
    queues=(
        model.Queue(
            name="Orders.eu",
            default_message_time_to_live_ms=1_000,
            dead_lettering_on_message_expiration=True,
            max_delivery_count=3,
            user_metadata='100% "quoted" & <é>',
        ),
        model.Queue(name="drops", default_message_time_to_live_ms=1_000),
        model.Queue(name="moves", forward_dead_lettered_messages_to="drops"),
        model.Queue(name="idle", auto_delete_on_idle_ms=300_000),
    ),
    topics=(
        model.Topic(
            name="events",
            subscriptions=(
                model.Subscription(topic="events", name="All"),
                model.Subscription(
                    topic="events",
                    name="red",
                    rules=(
                        model.Rule(
                            name="red",
                            filter=model.CorrelationFilter(
                                properties=(("color", "red"), ("size", 3), ("new", True))
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)


def wanted(broker: Broker, vhost: str, flavour: str) -> Wanted:
    """The namespace in one of the flavours, for this broker."""
    target = Capabilities.of(broker.version_text)
    if flavour == "plain":
        topology = compile_plain(NAMESPACE, target)
    else:
        topology = compiler.compile(NAMESPACE, target)
        topology = replace(topology, parameters=definitions.parameters(NAMESPACE, vhost))
    return Wanted(topology=topology, vhost=vhost, target=target)


def run_bash(broker: Broker, text: str, folder: Path) -> None:
    """Run a script with `rabbitmqctl` on PATH: the node's own, or one that asks its API."""
    programs = folder / "bin"
    programs.mkdir()
    if broker.node is not None:
        broker.node.write_rabbitmqctl(programs)
    else:
        lines = [
            "#!" + sys.executable,
            "import sys; sys.path.insert(0, " + repr(str(Path(__file__).parents[2])) + ")",
            "from tests.fixtures.broker import Broker",
            "from tests.integration.reading import run_rabbitmqctl",
            f"broker = Broker({broker.url!r}, {broker.management_url!r})",
            "words = ['rabbitmqctl', *sys.argv[1:]]",
            "document = open(words.pop()).read() if words[1] == 'import_definitions' else None",
            "run_rabbitmqctl(broker, words, document)",
        ]
        (programs / "rabbitmqctl").write_text("\n".join(lines))
        (programs / "rabbitmqctl").chmod(0o755)
    run(text, programs)


def run(text: str, programs: Path, **environment: str) -> None:
    """Run a script with these programs before all others."""
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def installed_rabbitmqadmin_2() -> str | None:
    """The program, where somebody has installed it (`cargo install rabbitmqadmin`)."""
    program = shutil.which("rabbitmqadmin")
    if program is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return program if done.stdout.startswith("rabbitmqadmin 2.") else None


def run_rabbitmqadmin(broker: Broker, given: Wanted, folder: Path) -> None:
    """Version 1 is what the broker itself hands out; version 2 is no part of RabbitMQ."""
    where = urllib.parse.urlsplit(broker.management_url)
    login = f"-H {where.hostname} -P {where.port} -u {where.username} -p {where.password}"
    programs = folder / "bin"
    programs.mkdir()
    is_new = given.target.version >= rabbitmqadmin.VERSION_2_FROM
    installed = installed_rabbitmqadmin_2()
    if is_new and installed is None:
        for command in rabbitmqadmin.commands(given):
            document = None if command.document is None else json.dumps(command.document)
            run_rabbitmqadmin_2(broker, list(command.words), document)
        return
    words = str(installed)
    if not is_new:
        url = f"{where.scheme}://{where.hostname}:{where.port}/cli/rabbitmqadmin"
        script = folder / "rabbitmqadmin.py"
        with urllib.request.urlopen(url) as answer:
            script.write_bytes(answer.read())
        words = shlex.join([sys.executable, "-W", "ignore", str(script)])
    (programs / "rabbitmqadmin").write_text(f'#!/bin/bash\nexec {words} {login} "$@"\n')
    (programs / "rabbitmqadmin").chmod(0o755)
    run(WRITERS["rabbitmqadmin"](given).text, programs)


def load(broker: Broker, given: Wanted, to: str, folder: Path) -> None:
    """Give a writer's output to what it is for."""
    text = WRITERS[to](given).text
    match to:
        case "bash":
            run_bash(broker, text, folder)
        case "cmd":
            for words, document in Cmd().run(text).calls:
                run_rabbitmqctl(broker, words, document)
        case "powershell":
            for words, document in run_powershell(text):
                run_rabbitmqctl(broker, words, document)
        case "rabbitmqadmin":
            run_rabbitmqadmin(broker, given, folder)
        case "definitions":
            broker.management("POST", "/api/definitions", json.loads(text))
        case "kubernetes":
            apply_kubernetes(broker, text)
        case "terraform":
            apply_terraform(broker, text)


def shape(topology: Topology) -> set[str]:
    """Everything in a topology, without the order; Terraform makes texts of exchanges' numbers."""
    found = [*topology.queues, *topology.bindings, *topology.policies]
    exchanges = [
        Exchange(name=e.name, type=e.type, arguments={k: str(v) for k, v in e.arguments.items()})
        for e in topology.exchanges
    ]
    shown = [
        json.dumps([type(each).__name__, _fields(each)], sort_keys=True)
        for each in (*found, *exchanges)
    ]
    return set(shown)


def _fields(resource: object) -> dict[str, object]:
    return {name: getattr(resource, name) for name in resource.__slots__}  # type: ignore[attr-defined]


def expected_settings(topology: Topology) -> dict[str, dict[str, Value]]:
    """What is in force on each queue: the smaller of policy and operator policy."""
    found = {}
    for queue in topology.queues:
        policies = [policy for policy in topology.policies if not policy.is_operator]
        settings = [dict(policy.definition) for policy in winners(queue, policies)]
        for operator in winners(queue, [p for p in topology.policies if p.is_operator]):
            settings.append(dict(operator.definition))
        merged: dict[str, Value] = {}
        for each in settings:
            for key, value in each.items():
                old = merged.get(key)
                is_smaller = isinstance(old, int) and isinstance(value, int) and value < old
                if old is None or is_smaller:
                    merged[key] = value
        found[queue.name] = merged
    return found


CASES = [(to, flavour) for to in sorted(WRITERS) for flavour in ("bridge", "plain")]


@pytest.fixture(scope="module")
def loaded(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Wanted]]:
    """What every writer wrote in both flavours, each in a virtual host of its own."""
    with ExitStack() as vhosts:
        found = {}
        for to, flavour in CASES:
            vhost = vhosts.enter_context(broker.fresh_vhost())
            found[to, flavour] = wanted(broker, vhost, flavour)
            load(broker, found[to, flavour], to, tmp_path_factory.mktemp(to))
        yield found
        for given in found.values():
            for parameter in given.topology.parameters:
                path = f"/api/global-parameters/{urllib.parse.quote(parameter.name, safe='')}"
                with suppress(urllib.error.HTTPError):
                    broker.management("DELETE", path)


@pytest.mark.parametrize(("to", "flavour"), CASES)
def test_what_is_loaded_is_what_was_compiled(
    broker: Broker, loaded: dict[tuple[str, str], Wanted], to: str, flavour: str
) -> None:
    """Objects, definitions, and the settings that RabbitMQ itself says are in force."""
    given = loaded[to, flavour]
    wanted_shape = shape(given.topology)

    def live() -> Topology:
        return topology_of(broker.management("GET", "/api/definitions"), given.vhost)

    eventually(lambda: shape(live()) == wanted_shape)
    if to != "kubernetes":
        named = {parameter.name: parameter.value for parameter in given.topology.parameters}
        assert named == {each.name: each.value for each in live().parameters}
    expected = expected_settings(given.topology)
    fast = "?disable_stats=true" if given.target.version >= (4, 3) else ""

    def effective() -> dict[str, dict[str, Value]]:
        rows = broker.management("GET", f"/api/queues/{given.vhost}{fast}")
        return {row["name"]: dict(row.get("effective_policy_definition") or {}) for row in rows}

    eventually(lambda: effective() == expected)


@pytest.fixture
def plain(
    broker: Broker, vhost: str, pika_connection: pika.BlockingConnection
) -> Callable[[Topology], BlockingChannel]:
    """Load a topology by way of the definitions writer; nothing but RabbitMQ runs afterwards."""

    def load_it(topology: Topology) -> BlockingChannel:
        given = replace(wanted(broker, vhost, "plain"), topology=topology)
        text = WRITERS["definitions"](given).text
        broker.management("POST", "/api/definitions", json.loads(text))
        channel = pika_connection.channel()
        channel.confirm_delivery()
        return channel

    return load_it


def test_plain_rabbitmq_expires_limits_and_filters(
    broker: Broker, vhost: str, plain: Callable[[Topology], BlockingChannel]
) -> None:
    """With no bridge running: TTL, dead-lettering by reason, delivery limit, correlation filter."""
    channel = plain(compile_plain(NAMESPACE, Capabilities.of(broker.version_text)))
    publish = channel.basic_publish
    publish("Orders.eu", "any", b"expires", mandatory=True)
    publish("drops", "any", b"is dropped", mandatory=True)
    dead = "Orders.eu/$deadletterqueue"
    eventually(lambda: count(channel, dead) == 1)
    eventually(lambda: count(channel, "drops") == 0)
    assert count(channel, "drops/$deadletterqueue") == 0

    publish("Orders.eu", "any", b"fails", mandatory=True)
    deliveries = 0
    while count(channel, dead) == 1:
        method, _, _ = channel.basic_get("Orders.eu")
        if method is not None:
            deliveries += 1
            channel.basic_reject(method.delivery_tag, requeue=True)
    assert deliveries == 3
    reasons = []
    for _ in range(2):
        _, properties, _ = channel.basic_get(dead, auto_ack=True)
        reasons.append(properties.headers["x-first-death-reason"])
    assert reasons == ["expired", "delivery_limit"]

    publish("moves", "any", b"moves on", mandatory=True)
    method, _, _ = channel.basic_get("moves")
    channel.basic_reject(method.delivery_tag, requeue=False)
    taken: list[bytes] = []

    def takes_it() -> bool:
        _, _, body = channel.basic_get("drops", auto_ack=True)
        taken.extend([body] if body else [])
        return bool(taken)

    eventually(takes_it)
    assert taken == [b"moves on"]

    red = {"color": "red", "size": 3, "new": True}
    for headers in (red, {**red, "size": 4}, {}):
        publish("events", "", b"", pika.BasicProperties(headers=headers), mandatory=True)
    eventually(lambda: count(channel, "events/subscriptions/All") == 3)
    assert count(channel, "events/subscriptions/red") == 1


def test_plain_rabbitmq_deletes_an_idle_queue(
    broker: Broker, plain: Callable[[Topology], BlockingChannel]
) -> None:
    """AutoDeleteOnIdle as `expires` (5 minutes at least in Service Bus, 2 seconds here)."""
    topology = compile_plain(NAMESPACE, Capabilities.of(broker.version_text))
    hurried = tuple(
        replace(policy, definition={**policy.definition, "expires": 2_000})
        if "expires" in policy.definition
        else policy
        for policy in topology.policies
    )
    assert hurried != topology.policies
    channel = plain(replace(topology, policies=hurried))

    def is_gone() -> bool:
        other = channel.connection.channel()
        try:
            other.queue_declare("idle", passive=True)
        except ChannelClosedByBroker:
            return True
        other.close()
        return False

    assert not is_gone()
    eventually(is_gone)
    assert count(channel, "idle/$deadletterqueue") == 0
