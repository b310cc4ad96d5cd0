"""What a live RabbitMQ lacks of the resources that entities stand on; a computation without I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from bridge.topology import names
from bridge.topology.diff import Action, Change
from bridge.topology.resources import Binding, Exchange, Queue, Resource

SHARED = ""
"""The owner of resources that all entities share."""


@dataclass(frozen=True, slots=True)
class Lack:
    """One difference between the wanted and the live resources.

    Attributes:
        path: the path of the entity that stands on the resource, or `SHARED`.
        name: the resource in words, such as `the queue 'orders'`.
        is_route: whether numbered messages take this way.
        is_silent: whether RabbitMQ may have confirmed what was published without it, so that the
            journal alone may have some messages. Also of an exchange that is missing: the binding
            may have been deleted before. Not while the journal, or the queue of an entity that is
            no topic, is missing.
        takes_dead_letters: whether the stream of moved messages alone may have RabbitMQ's own dead
            letters without it. They wait for a missing dead-letter queue, but no more once it is
            made again, and its binding is not yet.
        conflict: why the live resource cannot be changed; "" when it is missing.
    """

    path: str
    name: str
    is_route: bool
    is_silent: bool
    takes_dead_letters: bool
    conflict: str


def lacking(bases: Mapping[str, str], changes: Iterable[Change]) -> list[Lack]:
    """Return what is missing, or is there with other unchangeable settings.

    Args:
        bases: the path of each entity, by the RabbitMQ name that its resources begin with.
        changes: the changes that would make the live resources as wanted (`diff.declarations`).
    """
    found = [
        (change, change.resource)
        for change in changes
        if isinstance(change.resource, Exchange | Queue | Binding)
    ]
    gone = {each.name for _, each in found if isinstance(each, Exchange | Queue)}
    return [
        Lack(
            path=_owner(resource, bases),
            name=in_words(resource),
            is_route=_is_route(resource, bases),
            is_silent=_is_silent(resource, gone),
            takes_dead_letters=_takes_dead_letters(resource, gone),
            conflict=change.reason if change.action is Action.CONFLICT else "",
        )
        for change, resource in found
    ]


def _is_silent(resource: Resource, gone: Container[str]) -> bool:
    if not isinstance(resource, Binding) or not resource.source.endswith(names.ACTIVE_SUFFIX):
        return False
    base = resource.source.removesuffix(names.ACTIVE_SUFFIX)
    is_of_queue = resource.destination.startswith(base)
    is_of_topic = names.SUBSCRIPTIONS in resource.destination
    is_looked_for = is_of_queue and not is_of_topic and resource.destination in gone
    return base + names.JOURNAL_SUFFIX not in gone and not is_looked_for


def _takes_dead_letters(resource: Resource, gone: Container[str]) -> bool:
    if not isinstance(resource, Binding):
        return False
    is_of_letters = resource.destination.endswith(names.DEAD_LETTER_SUFFIX)
    return is_of_letters and resource.source not in gone


def in_words(resource: Exchange | Queue | Binding) -> str:
    """Return a resource's kind and name."""
    match resource:
        case Binding():
            return f"the binding from {resource.source!r} to {resource.destination!r}"
        case Queue() if resource.arguments.get("x-queue-type") == "stream":
            return f"the stream {resource.name!r}"
        case _:
            return f"the {type(resource).__name__.lower()} {resource.name!r}"


def _owner(resource: Resource, bases: Mapping[str, str]) -> str:
    match resource:
        case Binding():
            is_ours = resource.source.endswith(names.ACTIVE_SUFFIX) or not _base(
                resource.source, bases
            )
            return _base(resource.destination if is_ours else resource.source, bases)
        case Exchange() | Queue():
            return _base(resource.name, bases)
        case _:
            return SHARED


def _base(name: str, bases: Mapping[str, str]) -> str:
    """Return the path of the entity whose resources have names like this one."""
    return bases.get(names.base_of(name), SHARED)


def _is_route(resource: Resource, bases: Mapping[str, str]) -> bool:
    if isinstance(resource, Binding):
        return resource.source.endswith(names.ACTIVE_SUFFIX)
    name = getattr(resource, "name", "")
    is_active_queue = name in bases or names.SHARD_SUFFIX in name
    is_exchange = isinstance(resource, Exchange)
    return name.endswith(names.ACTIVE_SUFFIX) or (is_active_queue and not is_exchange)
