"""RabbitMQ resources as values: the compiler returns them, broker and `policies` use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""A JSON value, as arguments and policy definitions hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: str
    arguments: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A durable queue or stream; its type is in `x-queue-type` among the arguments."""

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding from an exchange to a queue (or, with `to_exchange`, to an exchange)."""

    source: str
    destination: str
    routing_key: str = ""
    to_exchange: bool = False
    arguments: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy or operator policy; `apply_to` is RabbitMQ's `apply-to` (`queues`, `exchanges`)."""

    name: str
    pattern: str
    definition: dict[str, Value]
    priority: int = 0
    apply_to: str = "queues"
    is_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A global parameter: a name and a JSON value. The repr omits the value: it may have keys."""

    name: str
    value: Value = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shovel:
    """A dynamic shovel of a virtual host: it moves messages from a queue to an exchange."""

    name: str
    value: dict[str, Value]


Resource = Exchange | Queue | Binding | Policy | Shovel | Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A property of Service Bus that RabbitMQ does not provide in the same way.

    Attributes:
        entity: the entity's path, or "" for the namespace.
        property: the name of the Service Bus property.
        grade: `exact`, `by the bridge`, `approximate` or `lost`.
        message: the difference, and the remedy.
    """

    entity: str
    property: str
    grade: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All resources of a namespace, in an order in which they can be declared one after another."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[Policy, ...] = ()
    shovels: tuple[Shovel, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Topology:
        """Return a topology of some resources, which keep their order."""
        found = list(resources)
        return cls(
            exchanges=tuple(each for each in found if isinstance(each, Exchange)),
            queues=tuple(each for each in found if isinstance(each, Queue)),
            bindings=tuple(each for each in found if isinstance(each, Binding)),
            policies=tuple(each for each in found if isinstance(each, Policy)),
            shovels=tuple(each for each in found if isinstance(each, Shovel)),
            parameters=tuple(each for each in found if isinstance(each, Parameter)),
        )

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All resources, in the order of declaration."""
        return (
            *self.exchanges,
            *self.queues,
            *self.bindings,
            *self.policies,
            *self.shovels,
            *self.parameters,
        )
