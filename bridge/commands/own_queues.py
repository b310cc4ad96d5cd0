"""Queues that a command makes for itself, and deletes at its end, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bridge.commands.output import Output

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration


class OwnQueues:
    """Queues of a command's own.

    Attributes:
        are_gone: whether none of them is there any more; `False` until they are deleted.
    """

    def __init__(self) -> None:
        self.are_gone = False


@asynccontextmanager
async def own_queues(
    administration: RemoteAdministration,
    queues: Mapping[str, Mapping[str, str]],
    output: Output,
) -> AsyncIterator[OwnQueues]:
    """Make queues, and delete them afterwards; those that could not be deleted are named.

    Args:
        queues: the properties of each, by Azure's names.

    Raises:
        RemoteError: one cannot be made; those before it are deleted, and what has its name already
            is left alone.
    """
    from bridge.model.properties import EntityKind
    from bridge.remote.entity import entity_node
    from bridge.remote.errors import RemoteError

    own, names = OwnQueues(), []
    try:
        for name, given in queues.items():
            names.append(name)
            node = entity_node(EntityKind.QUEUE, given)
            try:
                await administration.create(EntityKind.QUEUE.value, node, name)
            except RemoteError as error:
                if not error.in_doubt:
                    names.remove(name)
                raise
        yield own
    finally:
        with output.interruption.deferred():  # another signal does not leave the queues there
            own.are_gone = await _remove(administration, names, output)


async def _remove(
    administration: RemoteAdministration, names: Collection[str], output: Output
) -> bool:
    """Delete the queues that were made; return whether all are gone."""
    from bridge.remote.errors import RemoteError, RemoteNotFound

    are_gone = True
    for name in names:
        try:
            await administration.delete(name)
        except RemoteNotFound:
            continue
        except RemoteError as error:
            are_gone = False
            output.say(f"The queue {name!r} is still there ({error}): delete it.")
        except asyncio.CancelledError:
            output.say(f"The queues {' and '.join(names)} may still be there: delete them.")
            raise
    return are_gone
