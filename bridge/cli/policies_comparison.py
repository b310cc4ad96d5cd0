"""Comparison of a broker with a namespace: the changes to make, now or after a saved plan."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.broker.management.live import CommandFailed, LiveBroker
from bridge.cli.policies_input import compiled, has_lower_names
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.diff import is_owned
from bridge.topology.mixed import refusal
from bridge.topology.policy import PRIORITY, free_priority
from bridge.topology.resources import Finding, Topology
from bridge.topology.sharing import levels
from policies import live, plan, planjson
from policies.grade import Flavour
from policies.plan import Plan
from policies.readers import Reading


class OtherFlavour(Exception):
    """The virtual host holds objects of another flavour; `str()` has the steps to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesComparison:
    """An input's topology, a broker's topology, and the changes between them.

    Attributes:
        findings: findings about the broker's definitions, and the compiler's.
        keep: see `plan.make`.
        prune: see `plan.make`.
    """

    made: Plan
    wanted: Topology
    there: Topology
    findings: tuple[Finding, ...]
    keep: bool
    prune: bool


async def compared(
    broker: LiveBroker,
    vhost: str,
    arguments: argparse.Namespace,
    reading: Reading,
    version: str,
) -> PoliciesComparison:
    """Return the comparison of an input with a broker.

    Raises:
        CommandFailed: the broker has no such virtual host.
        OtherFlavour: the broker's objects are of another flavour.
        ServiceBusError: a definition in the broker is malformed, and would stay.
    """
    export = await broker.definitions()
    check_vhost(export, vhost)
    there = live.topology_of(export, vhost)
    namespace, is_plain = reading.namespace, Flavour(arguments.flavour) is Flavour.PLAIN
    findings: list[Finding] = []
    if not is_plain:
        known, unknown = _known(there, vhost, may_be_malformed=arguments.prune)
        if not arguments.prune:
            namespace = live.merged(known, namespace)
            findings += unknown
        namespace = definitions.with_incarnations(namespace, known or model.Namespace())
    if said := refusal(there, vhost, wants_plain=is_plain):
        raise OtherFlavour(said)
    target = Capabilities.of(version)
    wanted = compiled(namespace, arguments, target, vhost, there=there)
    priority = arguments.priority
    if priority is None:
        names = [queue.name for queue in wanted.queues]
        foreign = [each for each in there.policies if not is_owned(each)]
        priority = free_priority(names, foreign, count=levels(wanted.policies))
    if priority != PRIORITY:
        wanted = compiled(namespace, arguments, target, vhost, priority=priority, there=there)
    keep = is_plain and not arguments.prune
    made = plan.make(wanted, export, vhost, keep=keep, prune=arguments.prune)
    names_ = plan.display_names(namespace) if has_lower_names(arguments) else {}
    return PoliciesComparison(
        made=replace(made, names=names_),
        wanted=wanted,
        there=there,
        findings=(*findings, *wanted.findings),
        keep=keep,
        prune=arguments.prune,
    )


def _known(
    there: Topology, vhost: str, *, may_be_malformed: bool
) -> tuple[model.Namespace | None, tuple[Finding, ...]]:
    try:
        return live.namespace_of(there, vhost)
    except ServiceBusError:
        if may_be_malformed:  # the definition is replaced
            return None, ()
        raise


def save(path: Path, found: PoliciesComparison, vhost: str, missing: Sequence[Finding]) -> None:
    """Save a plan for `saved_comparison`; nobody else may read the access keys in it."""
    kept = planjson.SavedPlan(
        vhost=vhost,
        before=planjson.fingerprint(found.there),
        wanted=found.wanted,
        keep=found.keep,
        prune=found.prune,
        names=found.made.names,
        losses=tuple(missing),
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        path.chmod(0o600)
        file.write(planjson.saved(kept))


async def saved_comparison(
    broker: LiveBroker, vhost: str, kept: planjson.SavedPlan
) -> PoliciesComparison:
    """Return the remaining changes of a saved plan.

    Raises:
        CommandFailed: the broker has no such virtual host.
    """
    export = await broker.definitions()
    check_vhost(export, vhost)
    made = plan.make(kept.wanted, export, vhost, keep=kept.keep, prune=kept.prune)
    return PoliciesComparison(
        made=replace(made, names=kept.names, losses=len(kept.losses)),
        wanted=kept.wanted,
        there=live.topology_of(export, vhost),
        findings=(),
        keep=kept.keep,
        prune=kept.prune,
    )


def check_vhost(export: live.Export, vhost: str) -> None:
    """Refuse a missing virtual host: its permissions are the operator's decision.

    Raises:
        CommandFailed: the virtual host is missing.
    """
    if not any(row["name"] == vhost for row in export["vhosts"]):
        raise CommandFailed(
            text=f"This RabbitMQ has no virtual host {vhost!r}. Make it with 'rabbitmqctl "
            "add_vhost', and give its users their rights with 'rabbitmqctl set_permissions'."
        )
