"""Grades: how well RabbitMQ does a property of Service Bus, with the bridge and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bridge.model import entity as model
from bridge.topology.capabilities import Capabilities


class Grade(Enum):
    """How well a target does a property, from best to worst."""

    EXACT = "exact"
    BRIDGE = "by the bridge"
    APPROXIMATE = "approximate"
    LOST = "lost"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Grade).index(self)


class Flavour(Enum):
    """RabbitMQ with the bridge, or plain RabbitMQ."""

    BRIDGE = "bridge"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An entity, or the namespace, whose property is graded.

    Attributes:
        entity: the entity, or the namespace.
        names: the names of the namespace's queues and topics, in lower case.
        comes_back: the forwarded messages of the entity can reach the entity again.
        rule: the rule, when a rule is graded.
        capabilities: of the target's RabbitMQ version.
    """

    entity: model.Entity | model.Namespace
    capabilities: Capabilities
    names: frozenset[str] = frozenset()
    comes_back: bool = False
    rule: model.Rule | None = None


def always(_: Subject) -> bool:
    """Return true: the test of a case that applies to every value."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A grade for some values of a property; the first case of a list that applies holds.

    Attributes:
        when: the values, in words; "" for all values without an earlier case.
        note: the difference from Service Bus, and what to do about it.
    """

    grade: Grade
    when: str = ""
    note: str = ""
    applies: Callable[[Subject], bool] = always


def exact(note: str = "") -> Case:
    """Return a case in which everything is as in Service Bus."""
    return Case(grade=Grade.EXACT, note=note)


def bridge(note: str = "") -> Case:
    """Return a case in which the bridge does the property, with no setting of RabbitMQ."""
    return Case(grade=Grade.BRIDGE, note=note)


def approximate(note: str) -> Case:
    """Return a case with a difference from Service Bus."""
    return Case(grade=Grade.APPROXIMATE, note=note)


def lost(note: str) -> Case:
    """Return a case in which the target has nothing like the property."""
    return Case(grade=Grade.LOST, note=note)


def when(words: str, applies: Callable[[Subject], bool], case: Case) -> Case:
    """Return `case` for the values that `words` describe and `applies` tests."""
    return Case(grade=case.grade, when=words, note=case.note, applies=applies)


def decided(cases: tuple[Case, ...], subject: Subject) -> Case:
    """Return the case of a subject; the last one applies to everything."""
    return next(case for case in cases if case.applies(subject))
