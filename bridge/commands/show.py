"""`busbridge show`: an entity's properties and counts, and the entities or rules below it."""

from __future__ import annotations

import argparse

from bridge.commands import shown_entities
from bridge.commands.asking import asking
from bridge.commands.exit_codes import ExitCode
from bridge.commands.names import names_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "show",
        "show an entity's properties and counts, with a topic's subscriptions or their rules",
        run=run,
        right="Manage on the entity",
        examples=(
            "busbridge show orders",
            "busbridge show events/Subscriptions/audit --json | jq .rules",
        ),
    )
    parser.add_argument(
        "entity", nargs="+", metavar="PATH",
        help="a queue, a topic, TOPIC/Subscriptions/NAME, or a rule of it: .../Rules/NAME",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Show one entity or rule."""
    names = names_in(arguments.entity)
    target = target_of(arguments)
    async with asking(target, output) as administration:
        entity = await administration.find(*names)
        shown = shown_entities.record(entity)
        below = []
        if entity.kind == "Topic":
            below = [each async for each in administration.subscriptions(*names)]
        elif entity.kind == "Subscription":
            below = [each async for each in administration.rules(*names)]
    if not output.is_table and entity.kind == "Topic":
        shown["subscriptions"] = [each.name for each in below]
    elif not output.is_table and entity.kind == "Subscription":
        shown["rules"] = [{"name": each.name, **shown_entities.shown_rule(each)} for each in below]
    output.record(shown)
    if not below or not output.is_table:
        return ExitCode.DONE
    if entity.kind == "Topic":
        rows = map(shown_entities.row, below)
        output.table(rows, shown_entities.COLUMNS, alarming=shown_entities.ALARMING)
    else:
        output.table(map(shown_entities.rule_row, below))
    return ExitCode.DONE
