"""A row of the mapping table: a property of Service Bus and its grades."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.model.properties import PROPERTIES, EntityKind
from policies.grade import Case, Flavour, Subject, exact, when

NOTHING = "nothing"
"""What a property is in RabbitMQ for which it has no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A property.

    Attributes:
        property: Azure's name.
        rabbitmq: the property's counterpart in RabbitMQ, for people.
        both: its cases with either flavour, which are tried first.
        with_bridge: its cases when the bridge runs.
        plain: its cases on RabbitMQ alone.
        only: the kinds of entities that the row is about; `None` for all that have the property.
    """

    property: str
    rabbitmq: str
    both: tuple[Case, ...] = ()
    with_bridge: tuple[Case, ...] = ()
    plain: tuple[Case, ...] = ()
    only: frozenset[EntityKind] | None = None

    def kinds(self) -> frozenset[EntityKind]:
        """Return the kinds of entities that the row is about; none for the namespace."""
        return PROPERTIES[self.property].kinds if self.only is None else self.only

    def cases(self, flavour: Flavour) -> tuple[Case, ...]:
        """Return the cases of a flavour."""
        return self.both + (self.with_bridge if flavour is Flavour.BRIDGE else self.plain)


def has(field: str, test: Callable[[Any], bool]) -> Callable[[Subject], bool]:
    """Return a function that says whether a subject's field passes a test."""
    return lambda subject: test(getattr(subject.entity, field))


def none(field: str) -> Case:
    """Return the case of an empty field, which is exact on every target."""
    return when("none", has(field, lambda value: not value), exact())


def off(field: str) -> Case:
    """Return the case of a switch that is off, which is exact on every target."""
    return when("false", has(field, lambda value: not value), exact())
