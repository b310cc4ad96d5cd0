"""`busbridge create`: a queue, a topic, a subscription or a rule."""

from __future__ import annotations

import argparse

from bridge.commands import shown_entities
from bridge.commands.asking import asking
from bridge.commands.exit_codes import ExitCode
from bridge.commands.names import KINDS, add_entity, names_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.property_options import add_properties, given_properties
from bridge.commands.rule_options import action_in, add_rule, filter_in
from bridge.commands.target import add_target, target_of
from bridge.model import entity as model
from bridge.model.properties import EntityKind

EXAMPLES = {
    "queue": (
        "busbridge create queue orders",
        "busbridge create queue orders --lock-duration PT30S --requires-session",
    ),
    "topic": (
        "busbridge create topic events",
        "busbridge create topic events --default-message-time-to-live P14D",
    ),
    "subscription": (
        "busbridge create subscription events audit",
        "busbridge create subscription events/Subscriptions/audit --max-delivery-count 3",
    ),
    "rule": (
        "busbridge create rule events audit red --filter \"colour = 'red'\"",
        "busbridge create rule events audit new --correlation Subject=new --property region=eu",
    ),
}


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    create = commands.add_parser("create", help="create a queue, topic, subscription or rule")
    kinds = create.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind in KINDS:
        parser = add_command(
            kinds, kind, f"create a {kind}",
            run=run, right="Manage on the namespace", examples=EXAMPLES[kind],
        )  # fmt: skip
        add_entity(parser, kind)
        if kind == "rule":
            add_rule(parser)
        else:
            add_properties(parser, EntityKind(kind.capitalize()), is_new=True)
        add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Create it, and write what it has become."""
    from bridge.remote.entity import entity_node, rule_node

    names = names_in(arguments.entity, arguments.kind)
    if arguments.kind == "rule":
        action, parameters = action_in(arguments)
        rule = model.Rule(
            name=names[-1],
            filter=filter_in(arguments) or model.TrueFilter(),
            action=action or "",
            action_parameters=parameters,
        )
        kind, description = "Rule", rule_node(rule)
        target = target_of(arguments)
    else:
        of = EntityKind(arguments.kind.capitalize())
        target = target_of(arguments)
        given = given_properties(arguments, of, target.address.namespace)
        kind, description = of.value, entity_node(of, given)
    async with asking(target, output) as administration:
        made = await administration.create(kind, description, *names)
    output.record(shown_entities.record(made))
    return ExitCode.DONE
