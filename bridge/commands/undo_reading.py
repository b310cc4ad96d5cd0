"""The messages of an undo file, and what the source says of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from bridge.commands.errors import CommandError

if TYPE_CHECKING:
    from bridge.operations.undo_file import Identity, Taken, TakenFate, UndoHead
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage
    from bridge.remote.namespace import RemoteNamespace

CHUNK: Final = 250
"""Lines that are looked for at the source together: as many as a bridge locks by number at once."""


class UndoLines:
    """The lines of an undo file behind the first.

    Args:
        file: the file, read up to the end of its first line.

    Each method reads them from the beginning, and raises CommandError for a line that is neither a
    message nor a mark. A last line that is cut short counts for nothing.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._start = file.tell()
        self._line = 1

    def taken(self) -> Iterator[tuple[int, Taken]]:
        """Yield the messages, each once, with the numbers of their lines."""
        from bridge.operations.lines.scalar_values import ValueRefused
        from bridge.operations.undo_file import entries

        try:
            for each in entries(self._whole()):
                yield self._line, each
        except (ValueRefused, UnicodeDecodeError) as error:
            raise self._refusal(error) from None

    def fates(self) -> dict[Identity, TakenFate]:
        """Return what the file says of each message."""
        from bridge.operations.lines.scalar_values import ValueRefused
        from bridge.operations.undo_file import fates

        try:
            return fates(self._whole())
        except (ValueRefused, UnicodeDecodeError) as error:
            raise self._refusal(error) from None

    def _whole(self) -> Iterator[str]:
        self._file.seek(self._start)
        self._line = 1
        for raw in self._file:
            if not raw.endswith(b"\n"):
                return
            self._line += 1
            yield raw.decode()

    def _refusal(self, error: Exception) -> CommandError:
        return CommandError(f"{self._path}:{self._line}: {error}.")


async def chunks(
    namespace: RemoteNamespace,
    head: UndoHead,
    found: Iterator[tuple[int, Taken]],
) -> AsyncIterator[list[tuple[int, Taken, bool]]]:
    """Yield messages with their lines, and whether the source has them still.

    A peek of a bridge may guess which messages are gone. So those that it does not show are locked
    by number, where the source can do that, and given back: then it has them.
    """
    from itertools import islice

    management = await namespace.management(head.entity)
    source = _Source(management)
    while chunk := list(islice(found, CHUNK)):
        by_number: dict[int, list[tuple[int, Taken]]] = {}
        for line, taken in chunk:
            by_number.setdefault(taken.number, []).append((line, taken))
        there = {
            line
            async for each in source.messages(by_number)
            for line, taken in by_number.get(int(each.sequence_number or 0), ())
            if taken.is_at_source(each)
        }
        left = [
            taken.number
            for line, taken in chunk
            if line not in there and taken.number and taken.message.state == "active"
        ]
        if left:
            messages, unavailable = await source.look(left)
            for each in messages:
                for line, taken in by_number.get(int(each.sequence_number or 0), ()):
                    if taken.is_at_source(each):
                        there.add(line)
            there.update(line for number in unavailable for line, _ in by_number.get(number, ()))
        yield [(line, taken, line in there) for line, taken in chunk]


class _Source:
    """What the source says of messages."""

    def __init__(self, management: RemoteManagement) -> None:
        self._management = management
        self._is_gone = False
        self._locks = True

    async def messages(self, numbers: Iterable[int]) -> AsyncIterator[RemoteMessage]:
        """Yield what peeks from these numbers on show; nothing if there is no such entity."""
        from bridge.remote.errors import RemoteNotFound

        wanted = sorted(each for each in numbers if each)
        while wanted and not self._is_gone:
            try:
                page = await self._management.peek(wanted[0], CHUNK)
            except RemoteNotFound:
                self._is_gone = True
                return
            for each in page:
                yield each
            last = max((int(each.sequence_number or 0) for each in page), default=0)
            if last < wanted[0]:
                return
            wanted = [each for each in wanted if each > last]

    async def look(self, numbers: Sequence[int]) -> tuple[list[RemoteMessage], list[int]]:
        """Return the messages that can be locked, and the numbers of others that may be there."""
        if self._is_gone or not self._locks:
            return [], []
        looking = asyncio.get_running_loop().create_task(self._look(list(dict.fromkeys(numbers))))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:  # what is locked goes back first
            await asyncio.gather(looking, return_exceptions=True)
            raise

    async def _look(self, left: list[int]) -> tuple[list[RemoteMessage], list[int]]:
        from bridge.remote.errors import RemoteError, RemoteNotFound, RemoteRefused

        messages: list[RemoteMessage] = []
        unavailable: list[int] = []
        while left:
            try:
                locked = await self._management.lock_messages(left)
            except (RemoteNotFound, RemoteRefused):  # Azure, RabbitMQ before 4.3, sessions
                self._locks = False
                break
            messages += [each.message for each in locked.deliveries]
            unavailable += [*locked.unavailable, *locked.unreached]
            tokens = [each.lock_token for each in locked.deliveries if each.lock_token is not None]
            if not tokens:
                break
            with suppress(RemoteError):  # their locks end
                await self._management.release_messages(tokens)
            left = list(locked.missing)  # large ones may have ended the bridge's search
        return messages, unavailable


@dataclass(frozen=True, slots=True)
class UndoOriginal:
    """What is kept of a message while its copy is looked for; not its body."""

    number: int
    message_id: object
    reason: str | None
    description: str | None

    @classmethod
    def of(cls, taken: Taken) -> Self:
        """Return it of a message of a file."""
        from bridge.wire.amqp10.errors import DecodeError

        message = taken.message
        try:
            reason, description = message.dead_letter_reason, message.dead_letter_error_description
            message_id = message.message_id
        except DecodeError:
            return cls(taken.number, None, None, None)
        return cls(
            taken.number,
            message_id,
            reason if isinstance(reason, str) else None,
            description if isinstance(description, str) else None,
        )


def original_rows(
    rest: Iterable[tuple[int, UndoOriginal]], why: str
) -> Iterator[dict[str, object]]:
    """Yield a row for each message, with its line and why it is listed."""
    for line, original in rest:
        yield {
            "line": line,
            "number": original.number,
            "message_id": _text(original.message_id),
            "why": why,
        }


def _text(message_id: object) -> object:
    """Return an id as JSON has it: Azure's are texts, other senders' may be numbers and more."""
    return message_id if message_id is None or isinstance(message_id, int) else str(message_id)
