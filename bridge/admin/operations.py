"""The operations of the administration API, for requests over HTTP and over RabbitMQ.

A GET of a missing queue or topic is answered with an empty feed, which the clients take for 'not
found'; of a missing subscription or rule with 404. A PUT with If-Match is an update, and describes
the whole entity: a property that the description lacks gets Azure's default. Its answer has no
counts, which no client reads there; that of a creation has zeros.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from bridge.admin.answers import (
    Asked,
    HttpAnswer,
    entry_answer,
    entry_of,
    etag_of,
    feed_answer,
    nothing_answer,
    now,
    page_of,
    rule_entry,
)
from bridge.admin.keys import with_keys
from bridge.admin.request_rights import RequestRights
from bridge.admin.target import AtomTarget, What
from bridge.engine.administration.changes import Administration
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.duration import instant_text
from bridge.model.entity import Right
from bridge.model.errors import (
    ArgumentError,
    EntityChanged,
    EntityConflict,
    EntityNotFound,
    NotAllowed,
)
from bridge.model.properties import CREATE_ONLY, EntityKind, kind_of
from bridge.wire.atom.descriptions import (
    Facts,
    described_kind,
    entity_node,
    namespace_node,
    read_entity,
    read_rule,
)
from bridge.wire.atom.documents import AtomEntry, read_description
from bridge.wire.atom.tier_limits import check_capacity, check_message_size
from bridge.wire.atom.writing import XmlElement
from bridge.wire.atom.xml import Element

_READERS: dict[What, tuple[Right, ...]] = {
    What.NAMESPACE: (Right.LISTEN, Right.SEND),
    What.RULE: (Right.LISTEN,),
    What.RULES: (Right.LISTEN,),
}
"""What may be read without the right to manage (.NET's client says so of the namespace)."""

_OF_SUBSCRIPTIONS = {
    ("GET", What.SUBSCRIPTION): "GetSubscription",
    ("GET", What.SUBSCRIPTIONS): "EnumerateSubscriptions",
    ("PUT", What.SUBSCRIPTION): "CreateOrUpdateSubscription",
    ("DELETE", What.SUBSCRIPTION): "DeleteSubscription",
}
"""Azure's names of operations, which it says where a right is missing (Azure's Go live tests)."""

NEW_MS = 10_000
"""So long after its making an entity that nobody leads yet is taken for unused."""

Found = TypeVar("Found", bound=model.Entity)


class Counter(Protocol):
    """Counts messages."""

    async def counts(self, entities: Sequence[model.Entity]) -> list[Counts]:
        """Return the counts of each entity."""


class Operations:
    """Carries requests out.

    Args:
        entities: returns the verbs that read and change entities, once they are available.
        counter: counts the entities' messages.
    """

    def __init__(self, entities: Callable[[], Administration], counter: Counter) -> None:
        self._administration = entities
        self._counter = counter
        self._verbs: dict[tuple[str, What], Callable[[Asked], Awaitable[HttpAnswer]]] = {
            ("GET", What.NAMESPACE): self._get_namespace,
            ("GET", What.QUEUES): self._list_entities,
            ("GET", What.TOPICS): self._list_entities,
            ("GET", What.SUBSCRIPTIONS): self._list_subscriptions,
            ("GET", What.RULES): self._list_rules,
            ("GET", What.ENTITY): self._get_entity,
            ("GET", What.SUBSCRIPTION): self._get_subscription,
            ("GET", What.RULE): self._get_rule,
            ("PUT", What.ENTITY): self._put_entity,
            ("PUT", What.SUBSCRIPTION): self._put_entity,
            ("PUT", What.RULE): self._put_rule,
            ("DELETE", What.ENTITY): self._delete_entity,
            ("DELETE", What.SUBSCRIPTION): self._delete_entity,
            ("DELETE", What.RULE): self._delete_rule,
        }

    def check(self, method: str, target: AtomTarget, access: RequestRights | None) -> None:
        """Raise for a request that does not exist, or that the client may not make.

        Raises:
            NotAllowed: the method does not exist for this kind of target.
            Unauthorized: the client lacks the right.
        """
        if (method, target.what) not in self._verbs:
            raise NotAllowed(f"{method} is nothing that can be done with this resource.")
        if access is None or self._is_known_missing(method, target, access):
            return
        rights = _READERS.get(target.what, ()) if method == "GET" else ()
        operation = _OF_SUBSCRIPTIONS.get((method, target.what), "")
        access.check(method, target.path, operation, Right.MANAGE, *rights)

    def _is_known_missing(self, method: str, target: AtomTarget, access: RequestRights) -> bool:
        """Whether a request reads a queue or topic that is not there, with any right at its path.

        Azure tells such a client that the entity is not there.
        """
        is_read = method == "GET" and target.what is What.ENTITY
        return is_read and access.covers(target.path) and self._find(target.entity) is None

    async def carry_out(self, method: str, asked: Asked) -> HttpAnswer:
        """Carry out a request that `check` has passed; raise `ServiceBusError` if it fails now."""
        return await self._verbs[method, asked.target.what](asked)

    # -- reading

    async def _get_namespace(self, asked: Asked) -> HttpAnswer:
        namespace = self._entities.namespace()
        node = namespace_node(namespace, namespace.name)
        return entry_answer(asked, entry_of(asked, "$namespaceinfo", namespace.name, node))

    async def _list_entities(self, asked: Asked) -> HttpAnswer:
        namespace = self._entities.namespace()
        is_queues = asked.target.what is What.QUEUES
        return await self._feed(asked, namespace.queues if is_queues else namespace.topics)

    async def _list_subscriptions(self, asked: Asked) -> HttpAnswer:
        topic = self._found(asked.target.entity, model.Topic)
        return await self._feed(asked, topic.subscriptions)

    async def _feed(self, asked: Asked, entities: Sequence[model.Entity]) -> HttpAnswer:
        page, next_url = page_of(asked, entities)
        counts = await self._counter.counts(page)
        entries = [
            self._entry(asked, each, counted) for each, counted in zip(page, counts, strict=True)
        ]
        is_old = any(each.is_old for each in counts)
        return feed_answer(asked, entries, next_url, is_old=is_old)

    async def _list_rules(self, asked: Asked) -> HttpAnswer:
        subscription = self._subscription(asked)
        page, next_url = page_of(asked, subscription.rules_by_name)
        entries = [rule_entry(asked, subscription, rule) for rule in page]
        return feed_answer(asked, entries, next_url)

    async def _get_entity(self, asked: Asked) -> HttpAnswer:
        entity = self._find(asked.target.entity)
        if entity is None:
            return nothing_answer(asked)
        return await self._counted(asked, entity)

    async def _get_subscription(self, asked: Asked) -> HttpAnswer:
        return await self._counted(asked, self._subscription(asked))

    async def _get_rule(self, asked: Asked) -> HttpAnswer:
        subscription = self._subscription(asked)
        rule = _rule_of(subscription, asked.target)
        return entry_answer(asked, rule_entry(asked, subscription, rule))

    async def _counted(self, asked: Asked, entity: model.Entity) -> HttpAnswer:
        (counts,) = await self._counter.counts([entity])
        entry = self._entry(asked, entity, counts)
        return entry_answer(asked, entry, is_old=counts.is_old)

    def _entry(self, asked: Asked, entity: model.Entity, counts: Counts | None) -> AtomEntry:
        node = self._node(asked, entity, counts)
        return entry_of(asked, entity.path, entity.name, node, entity)

    def _node(self, asked: Asked, entity: model.Entity, counts: Counts | None) -> XmlElement:
        facts = Facts(
            address=f"sb://{asked.host}",
            tier=self._entities.namespace().tier,
            counts=counts,
            accessed_at=_accessed_at(entity, counts),
            version=asked.version,
        )
        return entity_node(entity, facts)

    @property
    def _entities(self) -> Administration:
        return self._administration()

    def _find(self, path: str) -> model.Entity | None:
        try:
            return self._entities.get(path)
        except EntityNotFound:
            return None

    def _found(self, path: str, kind: type[Found]) -> Found:
        entity = self._find(path)
        if not isinstance(entity, kind):
            raise _not_found(path)
        return entity

    def _subscription(self, asked: Asked) -> model.Subscription:
        path = f"{asked.target.entity}/Subscriptions/{asked.target.subscription}"
        return self._found(path, model.Subscription)

    # -- writing

    async def _put_entity(self, asked: Asked) -> HttpAnswer:
        description = read_description(asked.body)
        identity = _identity(asked.target, description)
        made_at = now()
        if not asked.etag:
            entity = with_keys(
                read_entity(description, identity, version=asked.version), (), made_at
            )
            self._check(asked, entity)
            made = replace(entity, created_at=made_at, updated_at=made_at)
            created = await self._entities.create(made)
            return entry_answer(asked, self._entry(asked, created, Counts()), status=201)
        there = self._entities.get(asked.target.path)
        if kind_of(there) is not described_kind(description):
            raise EntityConflict(f"{there.path!r} is there, and is no such thing.")
        named = {**identity, "name": there.name}
        entity = read_entity(description, named, there, version=asked.version)
        _check_fixed(there, entity)
        entity = with_keys(entity, getattr(there, "authorization_rules", ()), made_at)
        self._check(asked, entity, there)
        wanted = replace(entity, updated_at=made_at)
        changed = await self._entities.update(wanted, partial(_check_match, asked.etag))
        return entry_answer(asked, self._entry(asked, changed, None))

    def _check(self, asked: Asked, entity: model.Entity, there: model.Entity | None = None) -> None:
        """Raise for settings that the namespace, or the client's rights, do not allow.

        Args:
            there: the entity before the change.
        """
        namespace = self._entities.namespace()
        check_message_size(entity, namespace.name, namespace.tier)
        check_capacity(entity, there, namespace.tier)
        for name, field in (
            ("ForwardTo", "forward_to"),
            ("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to"),
        ):
            target = getattr(entity, field, "")
            if not target:
                continue
            is_itself = target.lower() == entity.path.lower()  # Azure allows it
            if not is_itself and not isinstance(self._find(target), model.Queue | model.Topic):
                raise ArgumentError(
                    "SubCode=40400. The auto forwarding destination entity does not exist: "
                    f"{name} is {target!r}; there is no such queue or topic."
                )
            if asked.access is not None:
                asked.access.check_target(name, target)

    async def _delete_entity(self, asked: Asked) -> HttpAnswer:
        await self._entities.delete(asked.target.path)
        return HttpAnswer()

    async def _put_rule(self, asked: Asked) -> HttpAnswer:
        description = read_description(asked.body)
        if description.name != "RuleDescription":
            raise ArgumentError(f"A rule is a RuleDescription, not a {description.name}.")
        rule = read_rule(description, asked.target.rule)
        subscription = self._subscription(asked)
        if asked.etag:
            rule = await self._entities.update_rule(subscription.path, rule)
        else:
            rule = replace(rule, created_at=now())
            await self._entities.create_rule(subscription.path, rule)
        entry = rule_entry(asked, subscription, rule)
        return entry_answer(asked, entry, status=200 if asked.etag else 201)

    async def _delete_rule(self, asked: Asked) -> HttpAnswer:
        await self._entities.delete_rule(self._subscription(asked).path, asked.target.rule)
        return HttpAnswer()


def _identity(target: AtomTarget, description: Element) -> dict[str, str]:
    """Return the name of the described entity; its kind must be that of the request's path."""
    kind = described_kind(description)
    is_subscription = target.what is What.SUBSCRIPTION
    if kind is None or (kind is EntityKind.SUBSCRIPTION) is not is_subscription:
        raise ArgumentError(f"The body describes a {description.name}, which is not at this path.")
    if is_subscription:
        return {"topic": target.entity, "name": target.subscription}
    return {"name": target.entity}


def _accessed_at(entity: model.Entity, counts: Counts | None) -> str:
    """Return when a client used an entity last, as text; "" when none has.

    Azure's Go live tests: an update is no use, and a subscription is used when it is made. While
    nobody knows, it counts as used now, unless it is new.
    """
    used_ms = 0 if counts is None else counts.accessed_ms
    made_at = entity.created_at if isinstance(entity, model.Subscription) else ""
    if used_ms is None:
        now_at, new_from = instant_text(now_ms()), instant_text(now_ms() - NEW_MS)
        return made_at if entity.created_at > new_from else now_at
    used_at = instant_text(used_ms) if used_ms else ""
    return max(used_at, made_at) if used_at >= entity.created_at else made_at  # else a namesake's


def _rule_of(subscription: model.Subscription, target: AtomTarget) -> model.Rule:
    found = subscription.rule(target.rule)
    if found is None:
        raise _not_found(target.path)
    return found


def _check_match(etag: str, there: model.Entity) -> None:
    if etag not in ("*", etag_of(there.updated_at)):
        raise EntityChanged(f"{there.path!r} has changed since it was read.")


def _check_fixed(there: model.Entity, wanted: model.Entity) -> None:
    for field, name in CREATE_ONLY.items():
        if getattr(there, field, None) != getattr(wanted, field, None):
            kind, value = type(there).__name__, getattr(there, field)
            words = (
                f"Partitioning cannot be changed for {kind}."
                if name == "EnablePartitioning"
                else f"The value for the {name} property of an existing {kind} cannot be changed."
            )
            raise ArgumentError(f"{words} {there.path!r} has {value}.")


def _not_found(path: str) -> EntityNotFound:
    return EntityNotFound(f"The entity '{path}' is not there.")
