"""`busbridge relay init`: the control queue of a relay."""

from __future__ import annotations

import argparse
import os

from bridge.commands import shown_entities
from bridge.commands.errors import CommandError
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.relay_file import add_file, whole_file

PROPERTIES = {
    "LockDuration": "PT1M",
    "RequiresSession": "true",
    "MaxSizeInMegabytes": "1024",
    "UserMetadata": "Sessions of this queue say which process has a route of `busbridge relay`.",
}
"""Of a queue that holds no message: a session's lock is all that it is for. Its duration is how
long a route stands still when the process ends that has it."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "init", 'make the control queue, which routes of order = "entity" need',
        run=run, right="Manage on the control queue's namespace",
        examples=("busbridge relay init relay.toml", "busbridge relay init relay.toml --json"),
    )  # fmt: skip
    add_file(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Make the queue, or find it as it should be."""
    from bridge.model.properties import EntityKind
    from bridge.relay.running.namespaces import address_of, credential_of
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.entity import entity_node
    from bridge.remote.errors import RemoteNotFound

    place = whole_file(arguments, os.environ).control
    if place is None:
        output.say('Nothing is to be made: the file names no control queue (order = "entity").')
        return ExitCode.DONE
    kind = EntityKind.QUEUE.value
    address, credential = address_of(place.side), credential_of(place.side)
    async with RemoteAdministration(address, credential) as administration:
        try:
            found = await administration.find(place.path)
        except RemoteNotFound:
            description = entity_node(EntityKind.QUEUE, PROPERTIES)
            found = await administration.create(kind, description, place.path)
            output.say(f"The control queue {place} is made.")
        else:
            if found.kind != kind or found.properties.get("RequiresSession") != "true":
                raise CommandError(f"{place} is no queue with sessions: choose another name.")
            output.say(f"The control queue {place} is there already.")
    output.record(shown_entities.record(found))
    return ExitCode.DONE
