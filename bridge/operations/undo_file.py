"""The undo file: what a command has taken out of an entity, written before anything is settled.

Lines of JSON. The first says which command it was; others are messages as they were received, exact
lines (`lines.exact_lines`), with number and time at the source; and others again are marks: of
messages that stand before, the source has confirmed that they are removed, or they were left there.
A message without a mark is doubtful: the command was killed behind its line, and it may be removed,
or still be at its source, or have been received there by somebody since. The last line may be cut
short by a kill, and counts for nothing then. A message may stand there twice, with marks for each.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
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

Identity = tuple[int, int]
"""Number and enqueued time at the source, UTC ms: they tell a message from all others."""


def identity_of(message: RemoteMessage) -> Identity:
    """Return what tells a message from all others at its source; bytes that are none have none."""
    return int(message.sequence_number or 0), int(message.enqueued_time_ms or 0)


class TakenFate(Enum):
    """What an undo file says of a message.

    Attributes:
        REMOVED: the source has confirmed that it is removed.
        LEFT: it was left at its source, as it was.
        DOUBTFUL: the command ended before it could say.
    """

    REMOVED = "removed"
    LEFT = "left"
    DOUBTFUL = "doubtful"


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
        return self.identity[0]

    @property
    def enqueued_ms(self) -> int:
        """Its enqueued time at the source, UTC ms."""
        return self.identity[1]

    @property
    def identity(self) -> Identity:
        """What tells it from all others at the source."""
        return identity_of(self.message)

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


def mark_line(fate: TakenFate, identities: Iterable[Identity]) -> str:
    """Return the line that says what has become of messages that stand before it."""
    return json.dumps({fate.value: [list(each) for each in identities]})


def entry_of(line: str) -> Taken:
    """Return the message of a line; ValueRefused if it is none."""
    return _entry(parsed(line))


def _entry(fields: dict[str, Json]) -> Taken:
    sent = fields.pop(_SENT, None)
    if sent is not None and not isinstance(sent, dict):
        raise ValueRefused("it is no object", _SENT)
    return Taken(message_of_fields(fields, now_ms=0, is_sent=False), sent)


def _mark(fields: dict[str, Json]) -> tuple[TakenFate, list[Identity]] | None:
    """Return what a line says of messages; `None`: it is a message."""
    match fields:
        case {"removed": list() as found}:
            fate = TakenFate.REMOVED
        case {"left": list() as found}:
            fate = TakenFate.LEFT
        case _:
            return None
    return fate, [_identity(each, fate) for each in found]


def _identity(value: Json, fate: TakenFate) -> Identity:
    match value:
        case [int() as number, int() as enqueued_ms]:
            return number, enqueued_ms
    raise ValueRefused(f"{value!r} is no number with a time", fate.value)


def entries(lines: Iterable[str]) -> Iterator[Taken]:
    """Yield the messages of the lines behind the first, each once.

    Raises:
        ValueRefused: a line is neither a message nor a mark.
    """
    seen: set[Identity] = set()
    for line in lines:
        if not line.strip():
            continue
        fields = parsed(line)
        if _mark(fields) is not None:
            continue
        taken = _entry(fields)
        if taken.message.unread or taken.identity not in seen:
            seen.add(taken.identity)
            yield taken


def fates(lines: Iterable[str]) -> dict[Identity, TakenFate]:
    """Return what has become of each message, as the last line about it says.

    Args:
        lines: those behind the first.

    Raises:
        ValueRefused: a line is neither a message nor a mark.
    """
    found: dict[Identity, TakenFate] = {}
    for line in lines:
        if not line.strip():
            continue
        fields = parsed(line)
        mark = _mark(fields)
        if mark is None:
            found[_entry(fields).identity] = TakenFate.DOUBTFUL
        else:
            found.update(dict.fromkeys(mark[1], mark[0]))
    return found
