"""How well RabbitMQ, with the bridge or without it, does what a property of Service Bus says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bridge.model import entity as model
from bridge.topology.capabilities import Capabilities


class Grade(Enum):
    """From best to worst."""

    EXACT = "exact"
    BRIDGE = "by the bridge"
    APPROXIMATE = "approximate"
    LOST = "lost"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Grade).index(self)


class Flavour(Enum):
    """What runs beside RabbitMQ."""

    BRIDGE = "bridge"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is graded.

    Attributes:
        entity: the entity, or the namespace.
        names: those of the namespace's queues and topics, in lower case.
        comes_back: the forwarded messages of the entity can reach the entity again.
        rule: the rule, when it is one that is graded.
        capabilities: of the RabbitMQ that it shall run on.
    """

    entity: model.Entity | model.Namespace
    capabilities: Capabilities
    names: frozenset[str] = frozenset()
    comes_back: bool = False
    rule: model.Rule | None = None


def always(_: Subject) -> bool:
    """Whether a case applies that always does."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A grade for some values; the first case of a list that applies is the one.

    Attributes:
        when: the values, in words; "" for all that are left.
        note: what differs, and what to do.
    """

    grade: Grade
    when: str = ""
    note: str = ""
    applies: Callable[[Subject], bool] = always


def exact(note: str = "") -> Case:
    """Return the case that everything is as in Service Bus."""
    return Case(grade=Grade.EXACT, note=note)


def bridge(note: str = "") -> Case:
    """Return the case that the bridge does it, with no setting of RabbitMQ."""
    return Case(grade=Grade.BRIDGE, note=note)


def approximate(note: str) -> Case:
    """Return the case that something differs."""
    return Case(grade=Grade.APPROXIMATE, note=note)


def lost(note: str) -> Case:
    """Return the case that there is nothing like it."""
    return Case(grade=Grade.LOST, note=note)


def when(words: str, applies: Callable[[Subject], bool], case: Case) -> Case:
    """Return `case` for the values that `words` describe and `applies` knows."""
    return Case(grade=case.grade, when=words, note=case.note, applies=applies)


def decided(cases: tuple[Case, ...], subject: Subject) -> Case:
    """Return the case of a subject; the last one applies to everything."""
    return next(case for case in cases if case.applies(subject))
