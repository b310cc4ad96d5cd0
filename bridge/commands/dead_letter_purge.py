"""`busbridge dead-letter purge`: removes dead letters."""

from __future__ import annotations

import argparse

from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.selection_options import add_selection, selection_of
from bridge.commands.taking_options import add_taking, check_taking
from bridge.commands.target import add_target, target_of


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "purge",
        "remove dead letters, after asking",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge dead-letter purge orders --where \"color = 'red'\" --undo red.jsonl",
            "busbridge dead-letter purge events audit --yes",
        ),
    )
    add_path(parser, has_dead_letter=False)
    add_selection(parser, limit="how many to remove at most")
    add_taking(parser)
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Remove what is meant."""
    from bridge.commands.purging import purge_received
    from bridge.remote.namespace import RemoteNamespace

    check_taking(arguments)
    path = path_in(arguments.entity, is_dead_letter=True)
    selection = selection_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        return await purge_received(namespace, target, path, selection, arguments, output)
