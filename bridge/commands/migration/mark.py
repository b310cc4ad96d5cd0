"""The mark at a migration's target that all entities of a run are verified: an empty queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from bridge.commands.errors import CommandError
from bridge.commands.output import Output
from bridge.model.properties import EntityKind
from bridge.operations.migration.run_mark import FoundMark, digest_of, doubts
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import entity_node
from bridge.remote.errors import RemoteNotFound


class VerifiedMark:
    """The mark of a run.

    Args:
        target: the target's administration.
        name: the queue.
        paths: what the run copies, in lower case.
    """

    def __init__(self, target: RemoteAdministration, name: str, paths: Collection[str]) -> None:
        self._target = target
        self._name = name
        self._paths = paths

    async def find(self) -> FoundMark | None:
        """Return the mark, if the target has it; raises RemoteError."""
        try:
            found = await self._target.get("Queue", self._name)
        except RemoteNotFound:
            return None
        return FoundMark(found.time("CreatedAt"), found.description.text_of("UserMetadata"))

    def check(self, found: FoundMark, created: Mapping[str, str], output: Output) -> None:
        """See that the entities are those of the mark.

        Args:
            created: when each entity of the target was made, by the path in lower case.

        Raises:
            CommandError: one is not there, is newer, or is none of the mark's.
        """
        if told := doubts(found, self._paths, created):
            output.say_some("not as the mark says", told)
            raise CommandError(
                f"The target has the queue {self._name!r}, the mark that an earlier run of this "
                "command has verified all. Nothing was changed. If you have deleted what was "
                "copied, to begin anew, delete that queue, too. What is new at the source cannot "
                "be part of that run: delete it there, and give the same command again."
            )

    async def make(self) -> None:
        """Make it; raises RemoteError."""
        told = entity_node(EntityKind.QUEUE, {"UserMetadata": digest_of(self._paths)})
        await self._target.create("Queue", told, self._name)

    async def remove(self) -> None:
        """Remove it, if it is there; raises RemoteError."""
        with suppress(RemoteNotFound):
            await self._target.delete(self._name)
