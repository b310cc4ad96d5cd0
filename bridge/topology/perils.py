"""Perils: changes of settings by which a queue can lose messages that it would have kept before.

A queue's settings are its arguments and the policies in force, whoever made them. For a number
RabbitMQ takes the smallest of argument and policies; otherwise the argument goes before the policy.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bridge.topology import names
from bridge.topology.parts import DEATH_HEADER
from bridge.topology.policy import matches, winners
from bridge.topology.resources import (
    Binding,
    Exchange,
    Policy,
    Queue,
    Resource,
    Topology,
    Value,
)

Settings = Mapping[str, Value]

_REASONS = {"expired": "expire", "delivery_limit": "fail too often", "rejected": "are rejected"}
_REFUSING = frozenset({"reject-publish", "reject-publish-dlx"})


@dataclass(frozen=True, slots=True)
class Peril:
    """A queue that may lose messages, the reason, and its dead-letter exchanges."""

    queue: str
    reason: str
    exchanges: frozenset[str]


def key_of(resource: Resource) -> tuple[object, ...]:
    """Return a key that is unique among the resources of a virtual host."""
    match resource:
        case Binding() as binding:
            arguments = json.dumps(binding.arguments, sort_keys=True)
            ends = binding.source, binding.destination, binding.to_exchange
            return ("binding", *ends, binding.routing_key, arguments)
        case Policy() as policy:
            return "policy", policy.is_operator, policy.name
        case _:
            return type(resource).__name__, resource.name


def carried_out(live: Topology, gone: Iterable[Resource], put: Iterable[Resource]) -> Topology:
    """Return a topology after some resources are deleted and others are added or replaced."""
    there = {key_of(each): each for each in live.resources}
    for each in gone:
        there.pop(key_of(each), None)
    there.update({key_of(each): each for each in put})
    return Topology.of(there.values())


def perils(before: Topology, after: Topology) -> tuple[Peril, ...]:
    """Return the perils of the queues that exist before and after; a queue may have several.

    When two policies of one priority match, RabbitMQ applies either; both are considered.
    """
    old, new = _Vhost(before), _Vhost(after)
    left = {queue.name for queue in after.queues}
    found: list[Peril] = []
    for queue in (each for each in before.queues if each.name in left):
        both = [(was, will) for was in old.settings(queue) for will in new.settings(queue)]
        ends = {str(each.get("dead-letter-exchange", "")) for pair in both for each in pair}
        reasons = [
            reason for was, will in both for reason in _reasons(queue, (was, old), (will, new))
        ]
        found += [Peril(queue.name, reason, frozenset(ends)) for reason in dict.fromkeys(reasons)]
    return tuple(found)


def touches(resource: Resource, queue: str, exchanges: Container[str]) -> bool:
    """Whether a change of a resource can affect a queue's settings or its dead letters.

    Args:
        exchanges: the queue's dead-letter exchanges.
    """
    match resource:
        case Policy() as policy:
            return matches(policy, queue)
        case Binding() as binding:
            return binding.source in exchanges
        case Exchange() as exchange:
            return exchange.name in exchanges
        case _:
            return False


class _Vhost:
    """A topology, indexed for look-ups of queues' settings and of routes."""

    def __init__(self, topology: Topology) -> None:
        self._users = [each for each in topology.policies if not each.is_operator]
        self._operators = [each for each in topology.policies if each.is_operator]
        self._exchanges = {each.name: each for each in topology.exchanges}
        self._queues = {each.name for each in topology.queues}
        self._bindings: dict[str, list[Binding]] = {}
        ends = self._queues | self._exchanges.keys()
        for binding in (each for each in topology.bindings if each.destination in ends):
            self._bindings.setdefault(binding.source, []).append(binding)

    def settings(self, queue: Queue) -> list[dict[str, Value]]:
        """Return the settings that may be in force on a queue: one dict as a rule.

        There are several when policies of one priority match.
        """
        users: Sequence[Policy | None] = winners(queue, self._users) or (None,)
        operators: Sequence[Policy | None] = winners(queue, self._operators) or (None,)
        own = {key[2:]: v for key, v in queue.arguments.items() if key.startswith("x-")}
        return [
            _merged([own, *(each.definition for each in (user, operator) if each is not None)])
            for user in users
            for operator in operators
        ]

    def keeps(self, settings: Settings, reason: str) -> bool:
        """Whether dead letters of a reason are routed to a queue that keeps them."""
        exchange, key = (
            settings.get("dead-letter-exchange"),
            settings.get("dead-letter-routing-key"),
        )
        if exchange is None:
            return False
        if exchange == "":
            return key is None or (key != names.SINK and key in self._queues)
        return self._routes(str(exchange), reason)

    def _routes(self, exchange: str, reason: str) -> bool:
        """Whether an exchange routes dead letters of a reason to anything but the sink.

        Bindings to other exchanges count as kept, and so do bindings with any routing key.
        """
        made = self._exchanges.get(exchange)
        if made is None:
            return False
        bindings = self._bindings.get(exchange, [])
        by_reason = [b for b in bindings if b.arguments.get(DEATH_HEADER) == reason]
        if made.type == "headers" and by_reason:
            bindings = by_reason
        elif made.type == "headers":
            bindings = [b for b in bindings if DEATH_HEADER not in b.arguments]
        if any(binding.destination != names.SINK for binding in bindings):
            return True
        alternate = made.arguments.get("alternate-exchange")
        return not bindings and alternate is not None and self._routes(str(alternate), reason)


def _merged(parts: Sequence[Settings]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in (item for part in parts for item in part.items()):
        old = found.get(key)
        if isinstance(value, int) and value < 0:
            continue  # no limit
        if key not in found or (isinstance(old, int) and isinstance(value, int) and value < old):
            found[key] = value
    return found


def _reasons(
    queue: Queue, before: tuple[Settings, _Vhost], after: tuple[Settings, _Vhost]
) -> list[str]:
    (was, old), (will, new) = before, after
    found = []
    if _is_tighter("expires", was, will):
        found.append("expires deletes a queue that is unused for so long, with its messages")
    if queue.arguments.get("x-queue-type") == "stream":
        if _is_tighter("max-length-bytes", was, will) or was.get("max-age") != will.get("max-age"):
            found.append("what is beyond max-length-bytes or max-age is forgotten")
        return found
    for key, reason in (("message-ttl", "expired"), ("delivery-limit", "delivery_limit")):
        if _is_tighter(key, was, will) and not new.keeps(will, reason):
            found.append(f"{key}: messages that {_REASONS[reason]} are dropped")
    if _drops_head(was, will) and not new.keeps(will, "maxlen"):
        found.append("max-length and drop-head: its oldest messages are dropped")
    found += [
        f"dead letters: messages that {words} are dropped from now on"
        for reason, words in _REASONS.items()
        if old.keeps(was, reason) and not new.keeps(will, reason)
    ]
    return found


def _drops_head(was: Settings, will: Settings) -> bool:
    """Whether a full queue begins to drop its oldest messages, or is full earlier than before."""
    limits = [key for key in ("max-length", "max-length-bytes") if key in will]
    if not limits or will.get("overflow", "drop-head") in _REFUSING:
        return False
    began = was.get("overflow", "drop-head") in _REFUSING
    return began or any(_is_tighter(key, was, will) for key in limits)


def _is_tighter(key: str, was: Settings, will: Settings) -> bool:
    limit, before = will.get(key), was.get(key)
    return isinstance(limit, int) and not (isinstance(before, int) and before <= limit)
