"""What the reconciler has to check or to make soon, and why: told by all parts of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from bridge.topology.names import front_path

LOOK_AGAIN_S = 1.0

log = logging.getLogger(__name__)


class DueChecks:
    """Definitions that may have changed, and entities that lack a resource.

    Attributes:
        changed: set when any definition may have changed, or an entity lacks a resource.
        changed_one: set when another bridge has changed single definitions.
        incomplete: the entities that lack a resource (lower case).
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.changed_one = asyncio.Event()
        self.incomplete: set[str] = set()
        self._changed_paths: set[str] = set()
        self._making: set[str] = set()
        self._passed = asyncio.Event()
        self._begun = self._ended = 0
        self._looked = asyncio.Event()

    def begin_look(self) -> int:
        """Note that all definitions are about to be read; return the look's number."""
        self._begun += 1
        return self._begun

    def end_look(self, number: int) -> None:
        """Note that what a look has read is taken over."""
        self._ended = number
        self._looked.set()
        self._looked = asyncio.Event()

    async def looked(self) -> None:
        """Have all definitions read anew, and wait until they are taken over.

        While RabbitMQ's management API does not answer it is asked again, without an end.
        """
        wanted = self._begun + 1
        while self._ended < wanted:
            self.changed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._looked.wait()

    def wake(self) -> None:
        """Check all definitions soon: any of them may have changed."""
        self.changed.set()

    def wake_for(self, path: str) -> None:
        """Read one definition soon: another bridge has changed it, and made its resources."""
        self._changed_paths.add(path)
        self.changed_one.set()

    def complete(self, path: str) -> None:
        """Make an entity's resources again soon: one of them was deleted by hand."""
        if path.lower() not in self.incomplete:
            log.warning("entity.incomplete path=%s", path)
        self.incomplete.add(path.lower())
        self.changed.set()

    async def whole(self, front: str) -> None:
        """Wait while an entity, or a subscription of it, is known to lack a resource.

        `SHARED` stands for the resources that all entities share.
        """
        while any(front_path(each) == front.lower() for each in self.incomplete | self._making):
            await self._passed.wait()

    @contextlib.contextmanager
    def taking_changed(self) -> Iterator[set[str]]:
        """Take the definitions that other bridges have changed; after an error they are due."""
        self.changed_one.clear()
        paths, self._changed_paths = self._changed_paths, set()
        try:
            yield paths
        except BaseException:
            self._changed_paths |= paths
            self.changed_one.set()
            raise

    @contextlib.contextmanager
    def taking_incomplete(self) -> Iterator[set[str]]:
        """Take the incomplete entities; those that are not made stay incomplete after an error."""
        self._making, self.incomplete = self.incomplete, set()
        try:
            yield self._making
        except BaseException:
            self.incomplete |= self._making
            raise
        finally:
            self._making = set()
            self._passed.set()
            self._passed = asyncio.Event()
