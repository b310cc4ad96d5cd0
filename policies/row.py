"""A row of the mapping table: a property of Service Bus and its grades."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.model.properties import PROPERTIES, Kind
from policies.grade import Case, Flavour, Subject, exact, when

NOTHING = "nothing"
"""What a property is in RabbitMQ for which it has no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A property.

    Attributes:
        property: Azure's name.
        rabbitmq: what it is in RabbitMQ, for people.
        both: its grades on either, which come first.
        with_bridge: its grades when the bridge runs.
        plain: its grades on RabbitMQ alone.
        only: the entities that the row is about, where it is not about all that have the property.
    """

    property: str
    rabbitmq: str
    both: tuple[Case, ...] = ()
    with_bridge: tuple[Case, ...] = ()
    plain: tuple[Case, ...] = ()
    only: frozenset[Kind] | None = None

    def kinds(self) -> frozenset[Kind]:
        """Return the entities that it is about; none for the namespace."""
        return PROPERTIES[self.property].kinds if self.only is None else self.only

    def cases(self, flavour: Flavour) -> tuple[Case, ...]:
        """Return the cases of a flavour."""
        return self.both + (self.with_bridge if flavour is Flavour.BRIDGE else self.plain)


def has(field: str, test: Callable[[Any], bool]) -> Callable[[Subject], bool]:
    """Return whether an entity's field passes a test."""
    return lambda subject: test(getattr(subject.entity, field))


def none(field: str) -> Case:
    """Return the case that nothing is given, so that there is nothing to do."""
    return when("none", has(field, lambda value: not value), exact())


def off(field: str) -> Case:
    """Return the case that a switch is off, so that there is nothing to do."""
    return when("false", has(field, lambda value: not value), exact())
