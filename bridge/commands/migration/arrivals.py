"""Looks behind what was copied: nothing that the target has as scheduled was due at the source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final

from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration.meeting import TOGETHER, together
from bridge.operations.migration.arrived_messages import ArrivedMessages
from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.last_copied import LastCopied
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace

PAGE: Final = 250


async def arrived_messages(
    source: RemoteNamespace,
    target: RemoteNamespace,
    places: Sequence[CopyPlace],
    copied: Mapping[str, LastCopied],
) -> ArrivedMessages:
    """Return what has come to the source behind its copy, and what the target has of it.

    Args:
        places: all places of all entities: what forwards may have sent a message on.
        copied: what was copied of each entity, by the path in lower case.

    Raises:
        RemoteError: a namespace refuses, or does not answer.
    """
    arrived = ArrivedMessages()

    async def note(place: CopyPlace) -> None:
        last = copied.get(place.path.removesuffix(DEAD_LETTER).lower())
        for number in last.next_numbers() if last is not None else ():
            async for each in _behind(source, place.path, number, last):
                arrived.add(place.path, each)

    async def meet(place: CopyPlace) -> None:
        async for each in _behind(target, place.path, 1, None):
            if each.state == "scheduled":
                arrived.meet(place.path, each)

    await together([partial(note, each) for each in places], TOGETHER)
    if arrived:
        await together([partial(meet, each) for each in places if not each.is_dead], TOGETHER)
    return arrived


async def _behind(
    namespace: RemoteNamespace, path: str, number: int, copied: LastCopied | None
) -> AsyncIterator[RemoteMessage]:
    """Yield messages from a number on that were not copied, to the first page without one."""
    management = namespace.management_of(path)
    while page := await management.peek(number, PAGE):
        new = [
            each
            for each in page
            if copied is None or not copied.has(int(each.sequence_number or 0))
        ]
        for each in new:
            yield each
        if not new:
            break
        number = max(number, *(int(each.sequence_number or 0) for each in page)) + 1
    await management.close()
