"""`busbridge update`: properties of an entity, or what a rule takes and does."""

from __future__ import annotations

import argparse
from dataclasses import replace

from bridge.commands import shown_entities
from bridge.commands.asking import asking
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.names import KINDS, add_entity, names_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.property_options import add_properties, given_properties
from bridge.commands.rule_options import action_in, add_rule, filter_in
from bridge.commands.target import add_target, target_of
from bridge.model.properties import EntityKind

EXAMPLES = {
    "queue": (
        "busbridge update queue orders --max-delivery-count 3",
        "busbridge update queue orders --status ReceiveDisabled",
    ),
    "topic": (
        "busbridge update topic events --default-message-time-to-live P7D",
        "busbridge update topic events --no-enable-batched-operations",
    ),
    "subscription": (
        "busbridge update subscription events audit --lock-duration PT2M",
        "busbridge update subscription events audit --forward-dead-lettered-messages-to failed",
    ),
    "rule": (
        "busbridge update rule events audit red --filter \"colour IN ('red', 'pink')\"",
        "busbridge update rule events audit red --action 'SET seen = TRUE'",
    ),
}


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    update = commands.add_parser("update", help="change a queue, topic, subscription or rule")
    kinds = update.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind in KINDS:
        parser = add_command(
            kinds, kind, f"change a {kind}",
            run=run, right="Manage on the entity", examples=EXAMPLES[kind],
        )  # fmt: skip
        add_entity(parser, kind)
        if kind == "rule":
            add_rule(parser)
        else:
            add_properties(parser, EntityKind(kind.capitalize()), is_new=False)
        add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Read it, change what is given, and write what it has become."""
    from bridge.remote.entity import rule_node

    names = names_in(arguments.entity, arguments.kind)
    target = target_of(arguments)
    kind = arguments.kind.capitalize()
    if kind == "Rule":
        taken, (action, parameters) = filter_in(arguments), action_in(arguments)
        is_nothing = taken is None and action is None
    else:
        given = given_properties(arguments, EntityKind(kind), target.address.namespace)
        is_nothing = not given
    if is_nothing:
        raise WrongInput(f"Nothing is to be changed: see `busbridge update {kind.lower()} --help`.")
    async with asking(target, output) as administration:
        there = await administration.get(kind, *names)
        if kind == "Rule":
            rule = there.rule if taken is None else replace(there.rule, filter=taken)
            if action is not None:
                rule = replace(rule, action=action, action_parameters=parameters)
            description = rule_node(rule)
        else:
            description = there.changed(given)
        changed = await administration.update(kind, description, *names)
    output.record(shown_entities.record(changed))
    return ExitCode.DONE
