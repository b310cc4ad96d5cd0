"""The undo file: what a command has taken out of an entity, written before anything is settled.

Lines of JSON. The first says which command it was; each other one is a message as it was received,
an exact line (`lines.exact_lines`), with its number and its time at the source. So of each message
it can be asked whether the source has it still: a line may stand there for one that was not taken
after all, as the command was killed behind the line. The last line may be cut short by a kill, and
counts for nothing then: what it stands for was not touched. A message may stand there twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from bridge.operations.changes import MessageChanges, sent_again
from bridge.operations.lines.exact_lines import exact_fields_of, message_of_fields
from bridge.operations.lines.line_text import parsed
from bridge.operations.lines.message_lines import PROPERTY_FIELDS, fields_of
from bridge.operations.lines.scalar_values import Json, ValueRefused
from bridge.remote.message import RemoteMessage

VERSION: Final = 1

Verb = Literal["resubmit", "purge"]
VERBS: Final[tuple[Verb, ...]] = ("resubmit", "purge")

_HEAD: Final = "undo"
_SENT: Final = "sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoHead:
    """What a command has done.

    Attributes:
        verb: `resubmit` has moved messages, `purge` has removed them.
        namespace: the namespace's host name, with its port if it was given.
        entity: the path from which they were taken.
        to: the path to which they were moved; "" for a purge.
        keeps_death: whether the copies say why their originals died.
        began_ms: when it was begun, UTC ms; the copies are not older.
    """

    verb: Verb
    namespace: str
    entity: str
    to: str = ""
    keeps_death: bool = False
    began_ms: int = 0

    def line(self) -> str:
        """Return the first line, without a line end."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({_HEAD: {"version": VERSION, **fields}}, ensure_ascii=False)

    @classmethod
    def read(cls, line: str) -> Self:
        """Return what a first line says; ValueRefused if the file is no undo file of ours."""
        match parsed(line):
            case {"undo": {"version": int() as version}} if version > VERSION:
                raise ValueRefused(f"the file is of a later version of busbridge ({version})")
            case {
                "undo": {
                    "verb": "resubmit" | "purge" as verb,
                    "namespace": str() as namespace,
                    "entity": str() as entity,
                    "to": str() as to,
                    "keeps_death": bool() as keeps_death,
                    "began_ms": int() as began_ms,
                }
            }:
                return cls(
                    verb=verb, namespace=namespace, entity=entity,
                    to=to, keeps_death=keeps_death, began_ms=began_ms,
                )  # fmt: skip
        raise ValueRefused("the first line is not that of an undo file")

    def is_continued_by(self, other: UndoHead) -> bool:
        """Whether another command goes on with the same: it may write into the same file."""
        return replace(self, began_ms=0) == replace(other, began_ms=0)


@dataclass(frozen=True, slots=True)
class Taken:
    """A message of an undo file.

    Attributes:
        message: as it was received.
        sent: the fields of its copy, where that was changed; `None`: it was not.
    """

    message: RemoteMessage
    sent: dict[str, Json] | None = None

    @property
    def number(self) -> int:
        """Its sequence number at the source."""
        return int(self.message.sequence_number or 0)

    @property
    def enqueued_ms(self) -> int:
        """Its enqueued time at the source, UTC ms."""
        return int(self.message.enqueued_time_ms or 0)

    def is_at_source(self, found: RemoteMessage) -> bool:
        """Whether a message that was peeked at the source is this one, so that it is there still.

        A source that was made anew has other messages with the same numbers.
        """
        return (found.sequence_number, found.enqueued_time_ms) == (self.number, self.enqueued_ms)

    def is_copy(self, found: RemoteMessage, head: UndoHead) -> bool:
        """Whether a message at the target can be this one's copy.

        It says the same in all that a sender writes, and is not older than the command. Copies of
        two equal messages cannot be told apart, and need not be.
        """
        if found.unread or int(found.enqueued_time_ms or 0) < head.began_ms:
            return False
        sent = self.sent_fields(head)
        return _own(sent) == _own(json.loads(json.dumps(fields_of(found))), like=sent)

    def sent_fields(self, head: UndoHead) -> dict[str, Json]:
        """Return the fields of its copy; ValueRefused: it can have none."""
        if self.sent is not None:
            return self.sent
        changes = MessageChanges(keeps_death=head.keeps_death)
        found: dict[str, Json] = fields_of(sent_again(self.message, 0, changes))
        return found


_TIMES: Final = ("absolute_expiry_time", "creation_time")


def _own(fields: dict[str, Json], like: dict[str, Json] | None = None) -> dict[str, Json]:
    """Return the fields that a sender writes, but for times that are of the sending.

    Args:
        like: a message id counts if this has one: a namespace gives one to who has none.
    """
    names = [each for each in PROPERTY_FIELDS if each not in _TIMES]
    if "message_id" not in (fields if like is None else like):
        names.remove("message_id")
    return {
        name: fields[name]
        for name in (*names, "application_properties", "body", "partition_key")
        if fields.get(name) is not None
    }


class AwaitedCopies:
    """Copies that are looked for, each found once: a digest for each, whatever its size.

    `Taken.is_copy` says of one message what this says of any number.
    """

    def __init__(self, head: UndoHead) -> None:
        self._head = head
        self._places: dict[bytes, deque[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, taken: Taken, place: int) -> None:
        """Look for a message's copy, too; ValueRefused: it can have none.

        Args:
            place: names it when its copy is found.
        """
        digest = _digest(_own(taken.sent_fields(self._head)))
        self._places.setdefault(digest, deque()).append(place)
        self._count += 1

    def find(self, found: RemoteMessage) -> int | None:
        """Return which one's copy a message is; `None`: it is none, or no more are looked for."""
        if found.unread or int(found.enqueued_time_ms or 0) < self._head.began_ms:
            return None
        fields = json.loads(json.dumps(fields_of(found)))
        nameless: dict[str, Json] = {}
        for like in (fields, nameless):
            digest = _digest(_own(fields, like=like))
            if places := self._places.get(digest):
                self._count -= 1
                return places.popleft()
        return None


def _digest(fields: dict[str, Json]) -> bytes:
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def entry_line(message: RemoteMessage, sent: RemoteMessage | None = None) -> str:
    """Return the line of a message that is taken, without a line end.

    Args:
        message: as it was received.
        sent: its copy, where that was changed.
    """
    fields = exact_fields_of(message)
    if sent is not None:
        fields[_SENT] = fields_of(sent)
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def entry_of(line: str) -> Taken:
    """Return the message of a line; ValueRefused if it is none."""
    fields = parsed(line)
    sent = fields.pop(_SENT, None)
    if sent is not None and not isinstance(sent, dict):
        raise ValueRefused("it is no object", _SENT)
    return Taken(message_of_fields(fields, now_ms=0, is_sent=False), sent)


def entries(lines: Iterable[str]) -> Iterator[Taken]:
    """Yield the messages of the lines behind the first, each once.

    Raises:
        ValueRefused: a line is no message.
    """
    seen: set[tuple[int, int]] = set()
    for line in lines:
        if not line.strip():
            continue
        taken = entry_of(line)
        identity = taken.number, taken.enqueued_ms
        if taken.message.unread or identity not in seen:
            seen.add(identity)
            yield taken
