"""`busbridge policies` against a broker that runs: plan, apply, check, adopt, remove."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from dataclasses import replace
from typing import TextIO

from bridge.broker import seal
from bridge.broker.endpoint import parse_url
from bridge.broker.errors import BrokerError
from bridge.broker.live import CommandFailed, ConsoleBroker, HttpBroker, LiveBroker
from bridge.cli.policies_input import check_strict, compiled, read_input, show
from bridge.topology import definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.diff import Action, Change, is_owned, removal
from bridge.topology.names import EVENTS
from bridge.topology.policy import PRIORITY, free_priority
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Topology,
)
from policies import live, plan
from policies.grade import Flavour
from policies.plan import Plan
from policies.plan_text import text, title
from policies.readers import read
from policies.writers import emulator
from policies.writers.definitions import document

DRIFTED, REFUSED = 4, 5
SETTLED_WITHIN_S = 30.0
"""`rabbitmqctl import_definitions` comes back before the broker is done."""

ACTIONS = {
    "plan": "what would change in a broker",
    "apply": "change a broker so that it is as defined",
    "check": "whether a broker is as defined (for scripts)",
    "adopt": "print the namespace that a broker's objects make",
    "remove": "take away all that is ours in a broker",
}
WITH_INPUT = frozenset(("plan", "apply", "check"))
_CHANGING = frozenset(("apply", "remove"))


def add_arguments(parser: argparse.ArgumentParser, action: str) -> None:
    """Add what says which broker, and how far to go."""
    environment = os.environ
    parser.add_argument(
        "--rabbitmq-url",
        metavar="URL",
        default=environment.get("BUSBRIDGE_RABBITMQ_URL", "amqp://localhost"),
        help="amqp[s]://user:password@host[:port]/vhost; its AMQP port is not used",
    )
    parser.add_argument(
        "--management-url",
        metavar="URL",
        default=environment.get("BUSBRIDGE_MANAGEMENT_URL"),
        help="RabbitMQ's management API, several with commas between them; default: port 15672 "
        "(amqps: https and 15671) at each host of --rabbitmq-url",
    )
    for name, what in (
        ("ca", "CA of RabbitMQ's certificate"),
        ("cert", "client certificate"),
        ("key", "its key, if not in the same file"),
    ):
        variable = f"BUSBRIDGE_RABBITMQ_{name.upper()}"
        parser.add_argument(
            f"--rabbitmq-{name}", metavar="FILE", default=environment.get(variable), help=what
        )
    parser.add_argument(
        "--rabbitmqctl",
        nargs="?",
        const="rabbitmqctl",
        metavar="PROGRAM",
        help="through rabbitmqctl on the broker's host instead of the management API",
    )
    parser.add_argument("--vhost", help="the virtual host (default: that of the URL)")
    if action == "adopt":
        parser.add_argument(
            "--as",
            dest="form",
            choices=("definitions", "config"),
            default="definitions",
            help="a RabbitMQ definitions file that holds the whole namespace (default), or "
            "Config.json, which 'busbridge serve --config' takes too",
        )
    if action in WITH_INPUT:
        parser.add_argument(
            "--prune", action="store_true", help="entities that the input does not name shall go"
        )
        parser.add_argument("--queues", action="store_true", help="show the policy of each queue")
    if action in _CHANGING:
        parser.add_argument(
            "--allow", action="store_true", help="take steps with which messages can be lost"
        )


def run(arguments: argparse.Namespace) -> int:
    """Carry the action out and return its exit code."""
    return asyncio.run(_run(arguments))


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user does not mind colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


async def _run(arguments: argparse.Namespace) -> int:
    endpoint = parse_url(
        arguments.rabbitmq_url,
        ca=arguments.rabbitmq_ca,
        cert=arguments.rabbitmq_cert,
        key=arguments.rabbitmq_key,
    )
    endpoint = replace(endpoint, vhost=arguments.vhost or endpoint.vhost)
    broker: LiveBroker
    if arguments.rabbitmqctl:
        broker = ConsoleBroker(endpoint.vhost, arguments.rabbitmqctl.split())
    else:
        urls = (arguments.management_url or "").split(",")
        broker = HttpBroker(endpoint, [url.strip() for url in urls if url.strip()])
    try:
        match arguments.action:
            case "adopt":
                return await _adopt(broker, endpoint.vhost, form=arguments.form)
            case "remove":
                return await _remove(broker, endpoint.vhost, arguments)
            case action:
                return await _compare(broker, endpoint.vhost, arguments, action)
    finally:
        await broker.close()


async def _compare(
    broker: LiveBroker, vhost: str, arguments: argparse.Namespace, action: str
) -> int:
    version = await broker.version()
    target = Capabilities.of(version)
    reading = read_input(arguments)
    check_strict(arguments, reading, version)
    export = await broker.definitions()
    _check_vhost(export, vhost)
    there = live.topology_of(export, vhost)
    namespace, is_plain = reading.namespace, Flavour(arguments.flavour) is Flavour.PLAIN
    findings = [*reading.findings]
    if not arguments.prune and not is_plain:
        known, unknown = live.namespace_of(there, vhost)
        namespace = live.merged(known, namespace)
        findings += unknown
    wanted = compiled(namespace, arguments, target, vhost)
    priority = arguments.priority
    if priority is None:
        names = [queue.name for queue in wanted.queues]
        priority = free_priority(names, [p for p in there.policies if not is_owned(p)])
    if priority != PRIORITY:
        wanted = compiled(namespace, arguments, target, vhost, priority=priority)
    show([*findings, *wanted.findings])
    keep = is_plain and not arguments.prune
    made = plan.make(wanted, export, vhost, keep=keep)
    sys.stdout.write(text(made, is_coloured=is_coloured(sys.stdout), shows_queues=arguments.queues))
    if action == "check":
        return 0 if made.is_empty else DRIFTED
    if action == "plan":
        return 0
    return await _apply(broker, made, wanted, there, vhost, keep=keep, allow=arguments.allow)


async def _apply(
    broker: LiveBroker,
    made: Plan,
    wanted: Topology,
    there: Topology,
    vhost: str,
    *,
    keep: bool,
    allow: bool,
) -> int:
    if made.conflicts:
        return _refused("Nothing was changed: RabbitMQ cannot change these in place.")
    if made.destructive and not allow:
        return _refused("Nothing was changed: say --allow to take the destructive steps.")
    await _carry_out(broker, made.changes, there, vhost)
    end = time.monotonic() + SETTLED_WITHIN_S
    while (left := plan.make(wanted, await broker.definitions(), vhost, keep=keep)).changes:
        if time.monotonic() > end:
            raise CommandFailed(text=f"still to change:\n{text(left)}")
        await asyncio.sleep(0.2)
    if made.changes and any(exchange.name == EVENTS for exchange in wanted.exchanges):
        with contextlib.suppress(BrokerError):  # a bridge that hears nothing looks every 15 s
            await broker.announce(EVENTS)
    print(f"Applied: {len(made.changes)} steps.")
    return 0


async def _remove(broker: LiveBroker, vhost: str, arguments: argparse.Namespace) -> int:
    export = await broker.definitions()
    _check_vhost(export, vhost)
    there = live.topology_of(export, vhost)
    made = Plan(changes=removal(there))
    sys.stdout.write(text(made, is_coloured=is_coloured(sys.stdout)))
    if made.destructive and not arguments.allow:
        return _refused("Nothing was removed: say --allow to delete queues with their messages.")
    await _carry_out(broker, made.changes, there, vhost)
    print(f"Removed: {len(made.changes)} objects.")
    return 0


async def _adopt(broker: LiveBroker, vhost: str, *, form: str) -> int:
    """Print nothing but the namespace, as a file that every other action takes."""
    version, export = await broker.version(), await broker.definitions()
    _check_vhost(export, vhost)
    reading = read(json.dumps(export), "the broker", form="definitions", vhost=vhost)
    show(reading.findings)
    if form == "config":
        config, lost = emulator.write(reading.namespace)
        show(lost)
        print(config, end="")
        return 0
    found = document(Topology(parameters=definitions.parameters(reading.namespace, vhost)), vhost)
    print(json.dumps({"rabbitmq_version": version, **found}, indent=2))
    return 0


def _check_vhost(export: live.Export, vhost: str) -> None:
    """Whose it is and who may do what there is not for us to say, so it is never made here."""
    if not any(row["name"] == vhost for row in export["vhosts"]):
        raise CommandFailed(
            text=f"This RabbitMQ has no virtual host {vhost!r}. Make it with 'rabbitmqctl "
            "add_vhost', and give its users their rights with 'rabbitmqctl set_permissions'."
        )


async def _carry_out(
    broker: LiveBroker, changes: tuple[Change, ...], there: Topology, vhost: str
) -> None:
    """Make the changes; what was declared or deleted outlasts a kill of RabbitMQ then.

    And it does before the definitions are written, which come behind all that is declared: who
    reads them may use it.
    """
    kinds = [type(change.resource) for change in changes]
    split = kinds.index(Parameter) if Parameter in kinds else len(kinds)
    for part in (changes[:split], changes[split:]):
        await _make_all(broker, part, vhost)
        made = [change.resource for change in part]
        if any(isinstance(each, Exchange | Queue | Binding) for each in made):
            await _seal(broker, vhost)
            await asyncio.sleep(seal.wait_s(made, there))


async def _seal(broker: LiveBroker, vhost: str) -> None:
    """Make the changes that have those before them last."""
    queue = seal.queue(os.urandom(8))
    both = Topology(queues=(queue,), exchanges=(seal.EXCHANGE,))
    await broker.import_definitions(document(both, vhost))
    await broker.delete_queue(queue.name)
    await broker.delete_exchange(seal.EXCHANGE.name)


async def _make_all(broker: LiveBroker, changes: tuple[Change, ...], vhost: str) -> None:
    """Make the changes one after another; new resources in a row go in one import."""
    together: list[Exchange | Queue | Binding] = []
    for change in changes:
        resource = change.resource
        if change.action is Action.CREATE and isinstance(resource, Exchange | Queue | Binding):
            together.append(resource)
            continue
        await _import(broker, together, vhost)
        together = []
        try:
            await _make(broker, change)
        except BrokerError as error:
            raise CommandFailed(text=f"{title(resource)}: {error}") from error
    await _import(broker, together, vhost)


async def _import(
    broker: LiveBroker, resources: list[Exchange | Queue | Binding], vhost: str
) -> None:
    if resources:
        new = Topology(
            exchanges=tuple(each for each in resources if isinstance(each, Exchange)),
            queues=tuple(each for each in resources if isinstance(each, Queue)),
            bindings=tuple(each for each in resources if isinstance(each, Binding)),
        )
        await broker.import_definitions(document(new, vhost))


async def _make(broker: LiveBroker, change: Change) -> None:
    is_deleted = change.action is Action.DELETE
    match change.resource:
        case Policy() as policy if is_deleted:
            await broker.delete_policy(policy.name, operator=policy.is_operator)
        case Policy() as policy:
            await broker.put_policy(policy)
        case Parameter() as parameter if is_deleted:
            await broker.delete_global_parameter(parameter.name)
        case Parameter() as parameter:
            await broker.put_global_parameter(parameter.name, parameter.value)
        case Binding() as binding:
            await broker.delete_binding(binding)
        case Exchange() as exchange:
            await broker.delete_exchange(exchange.name)
        case Queue() as queue:
            await broker.delete_queue(queue.name)


def _refused(reason: str) -> int:
    print(reason, file=sys.stderr)
    return REFUSED
