"""The entities of a namespace whose paths match patterns, a page of counts for each hundred."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bridge.commands.output import Progress

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.entity import RemoteEntity

AT_ONCE = 8
"""Topics whose subscriptions are asked for at the same time."""

_WILDCARD = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class ListedEntity:
    """An entity, and when its counts came, by the loop's clock."""

    entity: RemoteEntity
    at_s: float


async def listed(
    administration: RemoteAdministration, patterns: Sequence[str], progress: Progress
) -> list[ListedEntity]:
    """Return the entities that one of the patterns matches, in the order of their paths.

    The subscriptions of a topic are asked for where a pattern may match one.

    Args:
        patterns: such as `orders*`; letters count in either case.
        progress: advances by each entity that is read.
    """
    loop = asyncio.get_running_loop()
    limit = asyncio.Semaphore(AT_ONCE)
    wanted = [each.lower() for each in patterns]

    async def read(found: AsyncIterator[RemoteEntity]) -> list[ListedEntity]:
        entities = []
        async for each in found:
            entities.append(ListedEntity(each, loop.time()))
            progress.advance()
        return entities

    async def below(topic: RemoteEntity) -> list[ListedEntity]:
        async with limit:
            return await read(administration.subscriptions(topic.name))

    found = await read(administration.queues())
    topics = await read(administration.topics())
    asked = [each.entity for each in topics if _may_match_below(wanted, each.entity.name)]
    counts = (topic.description.text_of("SubscriptionCount") for topic in asked)
    progress.total = progress.done + sum(int(each) for each in counts if each.isdecimal())
    found += topics
    for each in await asyncio.gather(*map(below, asked)):
        found += each
    found.sort(key=lambda each: [name.lower() for name in each.entity.names])
    return [
        each
        for each in found
        if any(fnmatchcase(each.entity.path.lower(), pattern) for pattern in wanted)
    ]


def _may_match_below(patterns: Sequence[str], topic: str) -> bool:
    """Whether a pattern in lower case may match the path of a topic's subscription."""
    base = f"{topic.lower()}/subscriptions/"
    for pattern in patterns:
        wildcard = _WILDCARD.search(pattern)
        start = pattern[: wildcard.start()] if wildcard else pattern
        if start.startswith(base) or (wildcard and base.startswith(start)):
            return True
    return False
