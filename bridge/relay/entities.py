"""Entities of a side as the routes of a file need them: what is there, and what it is like."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from bridge.model.rule import Filter
from bridge.relay.plan.circles import Forward
from bridge.relay.plan.fidelity import EntityFacts
from bridge.relay.plan.route import Place
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import RemoteEntity

_SUBSCRIPTIONS = "/subscriptions/"


async def sources_at(
    administration: RemoteAdministration, patterns: Collection[Place]
) -> list[str]:
    """Return the paths of queues and subscriptions that keep their messages (Manage).

    One that forwards has none to be received. What no pattern can stand for is not asked for: each
    topic is a request of its own.

    Args:
        patterns: places with a `*`; there can be more paths than those that they stand for.

    Raises:
        RemoteError: the namespace refuses, or does not answer.
    """
    found: list[RemoteEntity] = []
    if not all(each.is_subscription for each in patterns):
        found += [each async for each in administration.queues()]
    topics = {_topic(each) for each in patterns if each.is_subscription}
    if topics:
        names = [each.name async for each in administration.topics()]
        for name in names:
            if any(fnmatchcase(name.lower(), topic) for topic in topics):
                found += [each async for each in administration.subscriptions(name)]
    return [each.path for each in found if not each.properties.get("ForwardTo")]


def _topic(pattern: Place) -> str:
    """Return what the name of a pattern's topic is like; it has no case."""
    path = pattern.path.lower()
    return path[: path.index(_SUBSCRIPTIONS)]


async def facts_at(administration: RemoteAdministration, place: Place) -> EntityFacts:
    """Return what an entity is like (Manage).

    Raises:
        RemoteNotFound: it is not there.
        RemoteError: the namespace refuses, or does not answer.
    """
    topic, subscription = _names(place)
    if not subscription:
        return EntityFacts.of(await administration.find(topic))
    whole = await administration.get("Topic", topic)
    return EntityFacts.of(await administration.get("Subscription", topic, subscription), whole)


async def forwards_at(
    administration: RemoteAdministration, side_id: str, name: str
) -> list[Forward]:
    """Return what is forwarded of a queue, or of a topic's subscriptions (Manage).

    Raises:
        RemoteNotFound: it is not there.
        RemoteError: the namespace refuses, or does not answer.
    """
    entity = await administration.find(name)
    holders = [entity]
    if entity.kind == "Topic":
        holders = [each async for each in administration.subscriptions(name)]
    id_ = side_id.lower()
    found = []
    for each in holders:
        for key in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
            if to := each.properties.get(key, ""):
                path = to.partition("://")[2].partition("/")[2] or to
                target = id_, path.lower()
                found.append(Forward(each.path, (id_, name.lower()), target, key != "ForwardTo"))
    return found


async def filters_at(administration: RemoteAdministration, place: Place) -> list[Filter]:
    """Return the filters of a subscription's rules (Manage).

    Raises:
        RemoteError: the namespace refuses, or does not answer.
        ServiceBusError: a rule is none that is known here.
    """
    return [each.rule.filter async for each in administration.rules(*_names(place))]


def _names(place: Place) -> tuple[str, str]:
    """Return the names of a topic and of its subscription; of another entity its own, and ""."""
    path = place.entity.entity
    at = path.lower().find(_SUBSCRIPTIONS)
    return (path, "") if at < 0 else (path[:at], path[at + len(_SUBSCRIPTIONS) :])
