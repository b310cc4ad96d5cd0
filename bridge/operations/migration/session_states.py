"""The copy of the states of a place's sessions, as steps: read, stored, and seen to be the same.

A state is read by who has accepted its session. Digests are kept of those that there are, some 300
bytes each.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from bridge.model.session_id import FoldedId, fold
from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyEffect,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    ListSourceSessions,
    ListTargetStates,
    ReadSourceStates,
    SourceStates,
    StoreTargetStates,
    TargetStates,
)
from bridge.operations.migration.entity_reading import CopySteps

_Known = dict[FoldedId, tuple[str, bytes]]
"""Sessions with a state, as they are spelled, each with the digest of its state."""

TOGETHER: Final = 10
"""Sessions that are accepted at once, and states that are stored at once."""


class StateCopy:
    """Copies the states of the sessions of one place.

    Args:
        index: the index of the place.

    Where messages get new numbers, states of the target's own stay beside those of the source; a
    session that has another one at each side stops it.

    Attributes:
        may_have_copies: the target may have states.
    """

    def __init__(self, index: int, place: CopyPlace) -> None:
        self._index = index
        self._path = place.path
        self._anew = place.anew
        self._is_beside_own = bool(place.renumbered_by)
        self._source: _Known = {}
        self._target: _Known = {}
        self.may_have_copies = False

    def __len__(self) -> int:
        """How many states the source has; 0 until they are read."""
        return len(self._source)

    def digests(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the path and, of each session of the source with a state, its id and its digest."""
        for session_id, digest in self._source.values():
            yield self._path, session_id, digest

    def find(self, *, is_new: bool) -> CopySteps:
        """Find the states that the target has.

        Args:
            is_new: it was not held before, so that they are not this run's.

        Raises:
            CopyStopped: they are the target's own.
        """
        found = yield from self._target_states()
        self.may_have_copies = bool(found) and not is_new
        if is_new and found and not self._is_beside_own:
            session_id, _ = next(iter(found.values()))
            raise own_state(self._path, session_id)
        self._target = found

    def shows_any(self) -> Generator[CopyEffect, CopyAnswer, bool]:
        """Whether the target has states: another run of the same name has copied them."""
        found = yield from self._target_states()
        return bool(found) and not self._is_beside_own

    def copy(self) -> CopySteps:
        """Store at the target what the source has, and the target has not.

        Raises:
            CopyStopped: a session is locked, the target does not take a state, or has another.
        """
        self._source.clear()
        sessions = yield from self._sessions()
        for ids in _parts(sessions):
            states = yield from self._states(ids)
            new = []
            for session_id, state in states:
                key, digest = fold(session_id), sha256(state).digest()
                self._source[key] = session_id, digest
                if key not in self._target:
                    new.append((session_id, state))
                elif self._target[key][1] != digest:
                    raise self._is_no_copy(session_id, "a state", "and the source another")
            if new:
                self.may_have_copies = True
                yield from self._store(new)
                self._target |= {fold(each): self._source[fold(each)] for each, _ in new}
        self._check_others(self._target)

    def verify_source(self) -> CopySteps:
        """See that no state of the source has come, gone or changed."""
        left = dict(self._source)
        sessions = yield from self._sessions()
        for ids in _parts(sessions):
            states = yield from self._states(ids)
            for session_id, state in states:
                was = left.pop(fold(session_id), None)
                if was is None:
                    raise self._has_changed(session_id, "has come")
                if was[1] != sha256(state).digest():
                    raise self._has_changed(session_id, "has changed")
        for session_id, _ in left.values():
            raise self._has_changed(session_id, "has gone")

    def verify_target(self) -> CopySteps:
        """See that the target has all states, and no others."""
        found = yield from self._target_states()
        for key, (session_id, digest) in self._source.items():
            if key not in found:
                raise self._is_no_copy(session_id, "no state", "which the source has")
            if found[key][1] != digest:
                raise self._is_no_copy(session_id, "a state", "and the source another")
        self._check_others(found)

    # -- what is asked

    def _sessions(self) -> Generator[CopyEffect, CopyAnswer, list[str]]:
        """Return the source's sessions; of several spellings of one the first."""
        answer = yield ListSourceSessions(self._index)
        assert isinstance(answer, list | tuple)
        spelled: dict[FoldedId, str] = {}
        for each in answer:
            spelled.setdefault(fold(str(each)), str(each))
        return list(spelled.values())

    def _states(
        self, ids: tuple[str, ...]
    ) -> Generator[CopyEffect, CopyAnswer, Sequence[tuple[str, bytes]]]:
        answer = yield ReadSourceStates(self._index, ids)
        if isinstance(answer, CopyRefused):
            raise CopyStopped(f"{self._path}: {answer.text}")
        assert isinstance(answer, SourceStates)
        return answer.states

    def _target_states(self) -> Generator[CopyEffect, CopyAnswer, _Known]:
        answer = yield ListTargetStates(self._index)
        assert isinstance(answer, TargetStates)
        return {fold(each): (each, digest) for each, digest in answer.digests.items()}

    def _store(self, states: Sequence[tuple[str, bytes]]) -> CopySteps:
        answer = yield StoreTargetStates(self._index, tuple(states))
        if isinstance(answer, CopyRefused):
            raise CopyStopped(f"{self._path}: the target refuses {answer.text}")

    # -- why it stops

    def _check_others(self, found: _Known) -> None:
        for key, (session_id, _) in found.items():
            if key not in self._source and not self._is_beside_own:
                raise self._is_no_copy(session_id, "a state", "which the source has not")

    def _is_no_copy(self, session_id: str, what: str, but: str) -> CopyStopped:
        return CopyStopped(
            f"{self._path}: the target has {what} of session {session_id!r}, {but}: "
            f"{'it is its own, or ' if self._is_beside_own else ''}the source has changed. "
            f"{self._anew}"
        )

    def _has_changed(self, session_id: str, what: str) -> CopyStopped:
        return CopyStopped(
            f"{self._path}: the state of session {session_id!r} {what} at the source: stop what "
            "receives there, and begin again."
        )


def set_behind(
    read: Mapping[FoldedId, tuple[str, bytes | None]], held: Mapping[str, bytes]
) -> str | None:
    """Return a session whose state was set between its reading and the hold of its entity.

    Args:
        read: sessions as they are spelled, each with the SHA-256 of its state; `None`: it had none.
        held: the SHA-256 of all states of the held entity, by session.
    """
    had = {key: (session_id, digest) for key, (session_id, digest) in read.items() if digest}
    has = {fold(session_id): (session_id, digest) for session_id, digest in held.items()}
    for key, (session_id, _) in {**had, **has}.items():
        if key not in had or key not in has or had[key][1] != has[key][1]:
            return session_id
    return None


def own_state(path: str, session_id: str) -> CopyStopped:
    """Return the error that names a state which was at the target before it was held."""
    return CopyStopped(
        f"{path}: the target has a state of session {session_id!r} of its own: clear it first "
        "(`busbridge session state clear`)."
    )


def _parts(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(ids), TOGETHER):
        yield tuple(ids[at : at + TOGETHER])
