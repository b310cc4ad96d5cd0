"""`busbridge delete`: an entity with all its messages, or a rule."""

from __future__ import annotations

import argparse

from bridge.commands.asking import asking
from bridge.commands.exit_codes import ExitCode
from bridge.commands.names import KINDS, add_entity, names_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.target import add_target, target_of

EXAMPLES = {
    "queue": ("busbridge delete queue orders", "busbridge delete queue orders --yes"),
    "topic": ("busbridge delete topic events", "busbridge delete topic events --yes"),
    "subscription": (
        "busbridge delete subscription events audit",
        "busbridge delete subscription events/Subscriptions/audit --yes",
    ),
    "rule": (
        "busbridge delete rule events audit '$Default' --yes",
        "busbridge delete rule events/Subscriptions/audit/Rules/red",
    ),
}


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    delete = commands.add_parser(
        "delete", help="delete a queue, topic or subscription with its messages, or a rule"
    )
    kinds = delete.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind in KINDS:
        what = "" if kind == "rule" else " with all its messages"
        parser = add_command(
            kinds, kind, f"delete a {kind}{what}",
            run=run, right="Manage on the entity", examples=EXAMPLES[kind],
        )  # fmt: skip
        add_entity(parser, kind)
        add_yes(parser)
        add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Ask, then delete it; what is of another kind is not deleted."""
    names = names_in(arguments.entity, arguments.kind)
    target = target_of(arguments)
    async with asking(target, output) as administration:
        there = await administration.get(arguments.kind.capitalize(), *names)
    place = f"{arguments.kind} {there.path!r} of {target.name!r}"
    has = ""
    if arguments.kind == "topic":
        has = " with all its subscriptions and their messages"
    elif arguments.kind != "rule":
        count = there.counts.total
        has = f" with {count:,} message{'s' * (count != 1)}"
    output.confirm(f"Delete the {place}{has}?")
    async with asking(target, output) as administration:
        await administration.delete(*names)
    output.say(f"The {place} is deleted.")
    return ExitCode.DONE
