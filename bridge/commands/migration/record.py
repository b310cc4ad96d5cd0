"""What a migration's run leaves at the target: a queue that says what was copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from bridge.model.properties import EntityKind
from bridge.operations.migration.last_copied import (
    CopiedStates,
    LastCopied,
    ReturnedEntity,
    states_in_parts,
)
from bridge.operations.migration.run_mark import RECORD_PREFIX
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import entity_node
from bridge.remote.errors import RemoteError, RemoteNotFound
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace

BATCH: Final = 500
BATCH_BYTES: Final = 100_000
"""Messages and bytes of a batch, which are less than any namespace takes."""

PAGE: Final = 250


class CopyRecord:
    """The queue that says what the runs of one source have copied to a target.

    Each message of it is of one entity. The last one with its numbers counts, and what stands
    behind it: its states, and that it has come back. What was made afterwards has come back with no
    numbers.

    Args:
        administration, namespace: the target's.
        run: the name of the run, which is of its source.
    """

    def __init__(
        self, administration: RemoteAdministration, namespace: RemoteNamespace, run: str
    ) -> None:
        self._administration = administration
        self._namespace = namespace
        self.name = f"{RECORD_PREFIX}{run.partition('-')[2]}"

    async def write(self, copied: Sequence[LastCopied]) -> None:
        """Say what was copied; said twice it is the same. Raises RemoteError."""
        said: list[LastCopied | CopiedStates | ReturnedEntity] = [*copied]
        said += [part for each in copied for part in states_in_parts(each)]
        await self._namespace.patience.repeat(lambda: self._write(said), is_repeatable=True)

    async def write_returned(self, paths: Sequence[str]) -> None:
        """Say that entities have come back; said twice it is the same. Raises RemoteError."""
        said = [ReturnedEntity(each) for each in paths]
        await self._namespace.patience.repeat(lambda: self._write(said), is_repeatable=True)

    async def _write(self, said: Sequence[LastCopied | CopiedStates | ReturnedEntity]) -> None:
        try:
            node = entity_node(EntityKind.QUEUE, {})
            await self._administration.create("Queue", node, self.name)
        except RemoteError as error:
            if error.condition != "com.microsoft:entity-already-exists":
                raise
        sender = await self._namespace.sender(self.name)
        for batch in _batches([RemoteMessage.of(data=each.encode()) for each in said]):
            await sender.send(batch)
        await sender.close()

    async def read(self) -> dict[str, tuple[LastCopied, int]]:
        """Return what was copied, each with when that was said, by the path in lower case.

        Times are the target's (UTC ms). Nothing: there is no such queue. Raises RemoteError.
        """
        management = self._namespace.management_of(self.name)
        found: dict[str, tuple[LastCopied, int]] = {}
        number = 1
        with suppress(RemoteNotFound):
            while page := await management.peek(number, PAGE):
                for each in page:
                    number = max(number, int(each.sequence_number or 0) + 1)
                    if (copied := LastCopied.decode(each.data)) is not None:
                        found[copied.path.lower()] = copied, int(each.enqueued_time_ms or 0)
                    elif (part := CopiedStates.decode(each.data)) is not None:
                        path = part.path.lower()
                        if path in found:
                            copied, said_ms = found[path]
                            states = copied.states | part.digests
                            found[path] = replace(copied, states=states), said_ms
                    elif (note := ReturnedEntity.decode(each.data)) is not None:
                        path = note.path.lower()
                        said_ms = int(each.enqueued_time_ms or 0)
                        copied, said_ms = found.get(
                            path, (LastCopied(path=note.path, lasts={}), said_ms)
                        )
                        found[path] = replace(copied, is_returned=True), said_ms
        await management.close()
        return found

    async def remove(self) -> None:
        """Remove it, if it is there; raises RemoteError."""
        with suppress(RemoteNotFound):
            await self._administration.delete(self.name)


def _batches(messages: Iterable[RemoteMessage]) -> Iterator[list[RemoteMessage]]:
    batch: list[RemoteMessage] = []
    size_bytes = 0
    for each in messages:
        if batch and (size_bytes + each.size_bytes > BATCH_BYTES or len(batch) == BATCH):
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += each.size_bytes
    if batch:
        yield batch
