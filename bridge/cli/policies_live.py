"""`busbridge policies` against a running broker: plan, apply, check, adopt, remove."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bridge.broker.connection.endpoint import parse_url
from bridge.broker.errors import BrokerError
from bridge.broker.management.live import CommandFailed, ConsoleBroker, HttpBroker, LiveBroker
from bridge.cli.options import add_options, values_of
from bridge.cli.policies_comparison import (
    OtherFlavour,
    PoliciesComparison,
    check_vhost,
    compared,
    save,
    saved_comparison,
)
from bridge.cli.policies_input import (
    accepted,
    add_output,
    lost,
    read_input,
    show,
    show_all,
    texts,
    write_output,
)
from bridge.cli.policies_steps import carry_out
from bridge.commands.terminal import ProgressBar, can_ask, confirmed, is_coloured
from bridge.topology import definitions
from bridge.topology.diff import is_owned, removal
from bridge.topology.names import EVENTS
from bridge.topology.resources import Finding, Topology
from policies import live, losses, plan, planjson
from policies.plan import Plan
from policies.plan_text import counted, text, winner_line
from policies.readers import Reading, read
from policies.writers import emulator
from policies.writers.definitions import whole

LOST, DRIFTED, REFUSED = 3, 4, 5
SETTLED_WITHIN_S = 30.0
"""How long to wait: `rabbitmqctl import_definitions` returns before the broker is done."""

AGAIN_AFTER_S = 5.0
"""Changes that somebody else makes meanwhile are reverted after this time."""

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
    """Add the options for the broker, and for an action's scope."""
    _add_broker(parser)
    if action == "adopt":
        parser.add_argument(
            "--as",
            dest="form",
            choices=("definitions", "config"),
            default="definitions",
            help="a RabbitMQ definitions file that holds the whole namespace (default), or "
            "Config.json, which 'busbridge serve --config' takes too",
        )
        add_output(parser)
    if action in WITH_INPUT:
        parser.add_argument(
            "--prune", action="store_true", help="entities that the input does not name shall go"
        )
        parser.add_argument("--queues", action="store_true", help="show the policy of each queue")
    if action == "plan":
        parser.add_argument("--json", action="store_true", help="for scripts")
        parser.add_argument(
            "--out", metavar="FILE", help="keep the plan (with access keys) for 'apply FILE'"
        )
        add_output(parser)
    if action in _CHANGING:
        parser.add_argument(
            "--allow", action="store_true", help="take steps with which messages can be lost"
        )
        parser.add_argument("--yes", "-y", action="store_true", help="ask nothing")


def _add_broker(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("broker")
    group.add_argument(
        "--rabbitmq-url",
        metavar="URL",
        help="amqp[s]://user:password@host[:port]/vhost; its AMQP port is not used "
        "[amqp://localhost] ($BUSBRIDGE_RABBITMQ_URL)",
    )
    add_options(group, only=("management-url", "rabbitmq-ca", "rabbitmq-cert", "rabbitmq-key"))
    group.add_argument(
        "--rabbitmqctl",
        nargs="?",
        const="rabbitmqctl",
        metavar="PROGRAM",
        help="through rabbitmqctl on the broker's host instead of the management API",
    )
    group.add_argument("--vhost", help="the virtual host (default: that of the URL)")


def run(arguments: argparse.Namespace) -> int:
    """Run the action and return its exit code."""
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    said = values_of(arguments, os.environ)
    endpoint = parse_url(
        said["rabbitmq-url"] or "amqp://localhost",
        ca=said["rabbitmq-ca"],
        cert=said["rabbitmq-cert"],
        key=said["rabbitmq-key"],
    )
    endpoint = replace(endpoint, vhost=arguments.vhost or endpoint.vhost)
    broker: LiveBroker
    if arguments.rabbitmqctl:
        broker = ConsoleBroker(endpoint.vhost, arguments.rabbitmqctl.split())
    else:
        urls = (said["management-url"] or "").split(",")
        broker = HttpBroker(endpoint, [url.strip() for url in urls if url.strip()])
    try:
        match arguments.action:
            case "adopt":
                return await _adopt(broker, endpoint.vhost, arguments)
            case "remove":
                return await _remove(broker, endpoint.vhost, arguments)
            case action:
                return await _compare(broker, endpoint.vhost, arguments, action)
    except OtherFlavour as other:
        return _refused(str(other))
    finally:
        await broker.close()


async def _compare(
    broker: LiveBroker, vhost: str, arguments: argparse.Namespace, action: str
) -> int:
    given = texts(arguments)
    if planjson.is_saved(given[0][1]):
        if action != "apply" or len(given) > 1:
            raise ValueError(f"{given[0][0]} is a saved plan: only 'apply' takes it, and alone.")
        return await _apply_saved(
            broker, vhost, arguments, planjson.loaded(given[0][1], given[0][0])
        )
    version = await broker.version()
    reading = read_input(arguments, given)
    missing = lost(arguments, reading, version)
    _check_whole(arguments, reading)

    async def compare() -> PoliciesComparison:
        return await compared(broker, vhost, arguments, reading, version)

    found = await compare()
    show_all(reading, missing, found.findings, found.made.names)
    made = replace(found.made, losses=len(missing))
    if made.destructive:
        made = replace(made, messages=await broker.messages())
    _print(made, missing, arguments)
    if action == "check":
        return 0 if made.is_empty else DRIFTED
    if action == "plan":
        if arguments.out is not None:
            save(Path(arguments.out), found, vhost, missing)
        return 0
    if code := _objection(arguments, made, missing):
        return code
    return await _apply(broker, found, vhost, compare)


def _check_whole(arguments: argparse.Namespace, reading: Reading) -> None:
    """Refuse `--prune` for incomplete input: an unreadable entity must not be removed.

    Raises:
        ValueError: the input may be partial, and `--prune` was given.
    """
    if arguments.prune and reading.gaps:
        named = "\n".join(f"  {each}" for each in reading.gaps)
        raise ValueError(
            "--prune takes away what the input does not name, and this input is not known to be "
            f"whole:\n{named}\nMend it, or go without --prune."
        )


def _print(made: Plan, missing: Sequence[Finding], arguments: argparse.Namespace) -> None:
    if getattr(arguments, "json", False):
        write_output(arguments, planjson.to_json(made, missing))
        return
    output = getattr(arguments, "output", None)
    shown = text(
        made,
        is_coloured=not output and is_coloured(sys.stdout),
        shows_queues=arguments.queues,
    )
    if output:
        write_output(arguments, shown)
    else:
        sys.stdout.write(shown)
        sys.stdout.flush()


async def _apply_saved(
    broker: LiveBroker, vhost: str, arguments: argparse.Namespace, kept: planjson.SavedPlan
) -> int:
    if kept.vhost != vhost:
        raise ValueError(
            f"The plan is for the virtual host {kept.vhost!r}, not {vhost!r}: say --vhost."
        )

    async def compare() -> PoliciesComparison:
        return await saved_comparison(broker, vhost, kept)

    found = await compare()
    if planjson.fingerprint(found.there) != kept.before:
        return _refused(
            "Nothing was changed: the broker has changed since the plan was made. Plan anew."
        )
    made = found.made
    if made.destructive:
        made = replace(made, messages=await broker.messages())
    _print(made, kept.losses, arguments)
    show(kept.losses)
    if code := _objection(arguments, made, kept.losses):
        return code
    return await _apply(broker, found, vhost, compare)


def _objection(arguments: argparse.Namespace, made: Plan, missing: Sequence[Finding]) -> int:
    """Return the exit code that refuses a plan; 0 when the plan is accepted."""
    left = losses.unaccepted(missing, accepted(arguments))
    asks = can_ask() and not arguments.yes
    if left and not asks:
        names = ",".join(losses.name_of(each) for each in left)
        print(*losses.lines(left), sep="\n", file=sys.stderr)
        print(
            f"Nothing was changed: {counted(len(left), 'loss is', 'losses are')} not accepted. "
            f"If you can do without: --accept-losses '{names}'",
            file=sys.stderr,
        )
        return LOST
    if made.conflicts:
        return _refused("Nothing was changed: RabbitMQ cannot change these in place.")
    if made.overridden:
        return _refused(_overridden(made))
    if made.destructive and not arguments.allow:
        return _refused("Nothing was changed: say --allow to take the destructive steps.")
    if left:
        print(*losses.lines(left), sep="\n", file=sys.stderr)
        if not confirmed(f"{counted(len(left), 'loss', 'losses')}. Go on all the same?"):
            print("Nothing was changed.", file=sys.stderr)
            return LOST
    if made.changes and asks and not confirmed(f"Take {counted(len(made.changes), 'step')}?"):
        return _refused("Nothing was changed.")
    return 0


def _overridden(made: Plan) -> str:
    """Return the text about policies of other owners that stay in force, with the remedy."""
    shown = [winner_line(winner, made) for winner in made.overridden[:10]]
    above = [w for w in made.overridden if w.wanted is not None]
    foreign = [p for winner in above for p in winner.policies if not is_owned(p)]
    lines = ["Nothing was changed: other policies would stay in force on queues of ours:", *shown]
    if len(made.overridden) > len(shown):
        lines.append(f"  and {counted(len(made.overridden) - len(shown), 'queue')} more")
    if foreign:
        highest = max(policy.priority for policy in foreign)
        lines.append(f"With --priority {highest + 1} ours are above them.")
    lines.append("Or give them patterns that leave ours out, such as '^[^$]*$' for a catch-all.")
    return "\n".join(lines)


async def _apply(
    broker: LiveBroker,
    found: PoliciesComparison,
    vhost: str,
    compare: Callable[[], Awaitable[PoliciesComparison]],
) -> int:
    """Make the changes; repeat what somebody else undid, without new destructive changes."""
    changes = found.made.changes
    known = {stake for change in found.made.destructive for stake in change.stakes}
    with ProgressBar(len(changes), "Applying") as bar:
        await carry_out(broker, changes, found.there, vhost, bar)
        bar.doing("comparing")
        begin = again = time.monotonic()
        while (left := await compare()).made.changes:
            now = time.monotonic()
            new = {stake for change in left.made.destructive for stake in change.stakes} - known
            if now > begin + SETTLED_WITHIN_S or new or left.made.conflicts:
                raise CommandFailed(
                    text="The broker was changed by somebody else meanwhile. Apply again. Still to "
                    f"change:\n{text(left.made)}"
                )
            if now > again + AGAIN_AFTER_S:
                bar.add(len(left.made.changes))
                await carry_out(broker, left.made.changes, left.there, vhost, bar)
                bar.doing("comparing")
                again = time.monotonic()
            await asyncio.sleep(0.2)
    if changes and any(exchange.name == EVENTS for exchange in found.wanted.exchanges):
        with contextlib.suppress(BrokerError):  # a bridge that hears nothing looks every 15 s
            await broker.announce(EVENTS)
    print(f"Applied: {counted(len(changes), 'step')}.")
    return 0


async def _remove(broker: LiveBroker, vhost: str, arguments: argparse.Namespace) -> int:
    export = await broker.definitions()
    check_vhost(export, vhost)
    there = live.topology_of(export, vhost)
    namespace, _ = live.namespace_of(there, vhost)
    made = Plan(changes=removal(there), names=plan.display_names(namespace) if namespace else {})
    if made.destructive:
        made = replace(made, messages=await broker.messages())
    sys.stdout.write(text(made, is_coloured=is_coloured(sys.stdout)))
    sys.stdout.flush()
    if made.destructive and not arguments.allow:
        return _refused("Nothing was removed: say --allow to delete queues with their messages.")
    asks = can_ask() and not arguments.yes
    if made.changes and asks and not confirmed(f"Remove {counted(len(made.changes), 'object')}?"):
        return _refused("Nothing was removed.")
    with ProgressBar(len(made.changes), "Removing") as bar:
        await carry_out(broker, made.changes, there, vhost, bar)
    print(f"Removed: {counted(len(made.changes), 'object')}.")
    return 0


async def _adopt(broker: LiveBroker, vhost: str, arguments: argparse.Namespace) -> int:
    """Print only the namespace, as a file that every other action takes."""
    version, export = await broker.version(), await broker.definitions()
    check_vhost(export, vhost)
    reading = read(json.dumps(export), "the broker", form="definitions", vhost=vhost)
    show(reading.findings)
    if arguments.form == "config":
        config, lost = emulator.write(reading.namespace)
        show(lost)
        write_output(arguments, config)
        return 0
    found = whole(Topology(parameters=definitions.parameters(reading.namespace, vhost)), vhost)
    write_output(arguments, json.dumps({"rabbitmq_version": version, **found}, indent=2) + "\n")
    return 0


def _refused(reason: str) -> int:
    print(reason, file=sys.stderr)
    return REFUSED
