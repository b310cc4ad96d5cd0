"""A filter ready to be evaluated: a predicate, and the equality terms for an index."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from bridge.model.filters.message import FilteredMessage, Property
from bridge.model.filters.values import Value, ValueKind, index_key, kind_of

Predicate = Callable[[FilteredMessage], bool | None]
"""Returns whether the filter matches a message, or `None` for unknown. Raises FilterException."""


@dataclass(frozen=True, slots=True)
class Term:
    """A condition without which the filter is false: a property equals one of some constants.

    Attributes:
        of: the property.
        kind: of all the constants.
        keys: the constants' keys in an index (`values.index_key`): for a value whose key is not
            among them the condition does not hold; for other values it may.
    """

    of: Property
    kind: ValueKind
    keys: frozenset[object]

    @classmethod
    def equals(cls, of: Property, *constants: Value) -> Term:
        """Return the term for these constants, which are of one kind."""
        return cls(of, kind_of(constants[0]), frozenset(map(index_key, constants)))


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A filter that is made once and evaluated for many messages.

    Attributes:
        identity: filters with the same identity take the same messages.
        predicate: whether the filter takes a message.
        terms: all of them hold for every message that the filter takes.
        is_typed: a value of another kind than a term's makes the filter fail, not only false.
    """

    identity: Hashable
    predicate: Predicate
    terms: tuple[Term, ...] = ()
    is_typed: bool = False
