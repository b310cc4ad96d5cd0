"""What a migration's run has copied of each entity, by number: what came later is none of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bridge.model.number import PARTITION_COUNT, compose, partition_of
from bridge.model.session_id import fold
from bridge.operations.migration.run_mark import CLOCKS_MS, made_ms

STATES_PART: Final = 1_000
"""Digests of one part of the states: 35 KB."""

_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCopied:
    """The last numbers that were copied of an entity. Its numbers rise, so others came later.

    Attributes:
        path: a queue, a subscription, or a topic for its scheduled messages.
        lasts: of each partition the last number; of an entity without partitions, of partition 0.
        states: of the states of sessions that were copied the digests, by `state_digest`.
        is_returned: it has come back to the source since, which goes on with its messages.
        is_renumbered: the copies have other numbers.
    """

    path: str
    lasts: Mapping[int, int]
    states: frozenset[bytes] = frozenset()
    is_returned: bool = False
    is_renumbered: bool = False

    @classmethod
    def of(cls, path: str, numbers: Iterable[int]) -> LastCopied:
        """Return the last ones of numbers that were copied."""
        lasts: dict[int, int] = {}
        for each in numbers:
            partition = partition_of(each)
            lasts[partition] = max(lasts.get(partition, 0), each)
        return cls(path=path, lasts=lasts)

    def has(self, number: int) -> bool:
        """Whether the message of a number was copied, if there was one."""
        return 0 < number <= self.lasts.get(partition_of(number), 0)

    def next_numbers(self) -> list[int]:
        """Return from which numbers on messages are that came later; of each partition one."""
        if not any(self.lasts):
            return [self.lasts.get(0, 0) + 1]
        return [self.lasts.get(each, compose(each, 0)) + 1 for each in range(PARTITION_COUNT)]

    def has_state(self, session_id: str, state: bytes) -> bool:
        """Whether this state of a session was copied."""
        return state_digest(session_id, sha256(state).digest()) in self.states

    def encode(self) -> bytes:
        """Return it as JSON, without its states."""
        lasts = {str(partition): number for partition, number in sorted(self.lasts.items())}
        said = {"path": self.path, "lasts": lasts}
        return json.dumps(said | ({"renumbered": True} if self.is_renumbered else {})).encode()

    @classmethod
    def decode(cls, raw: bytes) -> LastCopied | None:
        """Return what `encode` has written; `None`: it is something else."""
        try:
            found = json.loads(raw)
            lasts = {int(partition): int(number) for partition, number in found["lasts"].items()}
            is_renumbered = found.get("renumbered") is True
            return cls(path=str(found["path"]), lasts=lasts, is_renumbered=is_renumbered)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class CopiedStates:
    """A part of the states of sessions that were copied of an entity."""

    path: str
    digests: frozenset[bytes]

    def encode(self) -> bytes:
        """Return it as JSON."""
        states = sorted(each.hex() for each in self.digests)
        return json.dumps({"path": self.path, "states": states}).encode()

    @classmethod
    def decode(cls, raw: bytes) -> CopiedStates | None:
        """Return what `encode` has written; `None`: it is something else."""
        try:
            found = json.loads(raw)
            return cls(str(found["path"]), frozenset(map(bytes.fromhex, found["states"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class ReturnedEntity:
    """The note that an entity has come back to the source."""

    path: str

    def encode(self) -> bytes:
        """Return it as JSON."""
        return json.dumps({"returned": self.path}).encode()

    @classmethod
    def decode(cls, raw: bytes) -> ReturnedEntity | None:
        """Return what `encode` has written; `None`: it is something else."""
        try:
            return cls(str(json.loads(raw)["returned"]))
        except (ValueError, KeyError, TypeError):
            return None


def state_digest(session_id: str, state_sha256: bytes) -> bytes:
    """Return the digest of a session with its state: 16 bytes.

    Args:
        state_sha256: of the state.
    """
    return sha256(state_sha256 + fold(session_id).encode()).digest()[:_DIGEST_BYTES]


def states_in_parts(copied: LastCopied) -> Iterator[CopiedStates]:
    """Yield the states of an entity in parts, each of which fits into a message."""
    digests = sorted(copied.states)
    for at in range(0, len(digests), STATES_PART):
        yield CopiedStates(copied.path, frozenset(digests[at : at + STATES_PART]))


def last_copied(
    copied: Iterable[tuple[str, Iterable[int]]],
    states: Iterable[tuple[str, str, bytes]] = (),
    *,
    is_renumbered: bool = False,
) -> list[LastCopied]:
    """Return the last numbers of each entity, and its states.

    Args:
        copied: the path of an entity and numbers that were copied of it; a path may come again.
        states: paths, and of each session with a state its id and the SHA-256 of the state.
        is_renumbered: the copies have other numbers.
    """
    digests: dict[str, set[bytes]] = {}
    for path, session_id, sha in states:
        digests.setdefault(path, set()).add(state_digest(session_id, sha))
    numbers: dict[str, dict[int, int]] = {}
    for path, found in copied:
        lasts = numbers.setdefault(path, {})
        for partition, number in LastCopied.of(path, found).lasts.items():
            lasts[partition] = max(lasts.get(partition, 0), number)
    return [
        LastCopied(
            path=path,
            lasts=lasts,
            states=frozenset(digests.get(path, ())),
            is_renumbered=is_renumbered,
        )
        for path, lasts in numbers.items()
    ]


def no_way_back(paths: Iterable[str], recorded: Mapping[str, tuple[LastCopied, int]]) -> list[str]:
    """Return a sentence for each entity whose copies cannot be told by their numbers.

    Args:
        paths: in lower case.
        recorded: what was copied, as for `not_copied`.
    """
    return [
        f"{path}: its copies have new numbers (`migrate run --renumber`), so none is told by its "
        f"own. `busbridge migrate verify --renumber {path}` names what is at the source alone: "
        "what the target has settled is to be removed there (`busbridge purge --number`); "
        "`busbridge export` and `busbridge import` bring what is new at the target."
        for path in sorted(paths)
        if path in recorded and recorded[path][0].is_renumbered
    ]


def not_copied(
    meant: Iterable[str],
    recorded: Mapping[str, tuple[LastCopied, int]],
    created: Mapping[str, str],
    made_at_source: Mapping[str, str],
) -> list[str]:
    """Return a sentence for each entity that no run has copied as both sides have it now.

    A target's entity gets no grace for clocks that differ: a run ends seconds behind its making,
    and one that was made anew in that time would have nothing of what is removed at the source.

    Args:
        meant: paths in lower case.
        recorded: what was copied, each with when that was said (UTC ms), by the path.
        created: when each entity of the target was made, by the path.
        made_at_source: likewise; made anew it gives the numbers that were copied once more.
    """
    told = []
    for path in sorted(meant):
        seen_ms = made_ms(created.get(path))
        source_ms = made_ms(made_at_source.get(path))
        if path not in recorded:
            told.append(f"{path}: no run that has come to its end has copied it.")
        elif recorded[path][0].is_returned:
            told.append(f"{path}: it has come back to the source, by `busbridge migrate back`.")
        elif path not in created:
            told.append(f"{path}: it is not at the target.")
        elif seen_ms is not None and seen_ms > recorded[path][1]:
            told.append(f"{path}: the target's was made behind its copy.")
        elif source_ms is not None and source_ms > recorded[path][1] + CLOCKS_MS:
            told.append(f"{path}: the source's was made behind its copy.")
    return told
