"""The administration API: what the administration clients of the Azure SDKs ask for.

A queue or topic that is not there is answered with an empty feed, which the clients take for 'not
found'; a subscription or rule with 404. A PUT with If-Match is an update, and describes the whole
entity anew: what it leaves out has Azure's default.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar
from urllib.parse import urlencode

from aiohttp import web

from bridge.admin.access import Access
from bridge.admin.keys import with_keys
from bridge.admin.refusals import CONTENT_TYPE, refusal
from bridge.admin.target import Target, What, parse_target
from bridge.broker.errors import BrokerError
from bridge.engine.administration.changes import Administration
from bridge.model import entity as model
from bridge.model.access_rules import RuleSet
from bridge.model.counts import Counts
from bridge.model.entity import Right
from bridge.model.errors import (
    ArgumentError,
    EntityConflict,
    EntityNotFound,
    InternalError,
    NotAllowed,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.properties import CREATE_ONLY, Kind
from bridge.wire.atom.descriptions import (
    NEVER,
    Facts,
    check_message_size,
    described_kind,
    entity_node,
    kind_of,
    namespace_node,
    read_entity,
    read_rule,
    rule_node,
)
from bridge.wire.atom.documents import (
    BODY_BYTES_MAX,
    Entry,
    entry_text,
    feed_text,
    nothing_text,
    read_description,
)
from bridge.wire.atom.writing import Node
from bridge.wire.atom.xml import Element

PAGE_MAX = 1_000
"""Entries of one page, whatever is asked for; without a wish there are 100."""

_PAGE = 100

_ENTRY_TYPE = "application/atom+xml; type=entry; charset=utf-8"
_FEED_TYPE = "application/atom+xml; type=feed; charset=utf-8"

_log = logging.getLogger("busbridge.administration")

Thing = TypeVar("Thing")


class Counter(Protocol):
    """Counts messages."""

    async def counts(self, entities: Sequence[model.Entity]) -> list[Counts]:
        """Return the counts of each entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request.

    Attributes:
        base: scheme and host that the client asked.
        query: the parameters, by name in lower case.
        etag: the If-Match header; "" when it is not there.
    """

    target: Target
    access: Access
    base: str
    host: str
    query: Mapping[str, str]
    body: bytes
    etag: str

    def url(self, path: str, **more: object) -> str:
        """Return the URL of a path, with the version of the API that the client speaks."""
        query = {f"${name}": value for name, value in more.items()}
        version = self.query.get("api-version", "2021-05")
        text = urlencode({**query, "api-version": version}, safe="$")
        return f"{self.base}/{path}?{text}"


class Service:
    """Answers requests.

    Args:
        entities: returns the verbs that change entities, once there are any.
        counter: counts their messages.
        rules: returns the shared access rules of now.
        on_authorized: called with each request whose token is valid, whatever it may do.
    """

    def __init__(
        self,
        entities: Callable[[], Administration],
        counter: Counter,
        rules: Callable[[], RuleSet],
        *,
        on_authorized: Callable[[web.Request], None],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._administration = entities
        self._counter = counter
        self._rules = rules
        self._on_authorized = on_authorized
        self._now_s = now_s
        self._verbs: dict[tuple[str, What], Callable[[Asked], Awaitable[web.Response]]] = {
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

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request; what is refused, or fails, is answered in Azure's form."""
        try:
            return await self._answer(request)
        except ServiceBusError as error:
            return _refused(error, request)
        except BrokerError as error:
            _log.warning("administration.failed path=%s error=%s", request.path, error)
            return _refused(ServerBusy(f"RabbitMQ cannot do this now: {error}."), request)
        except Exception:
            _log.exception("administration.failed path=%s", request.path)
            return _refused(InternalError("The bridge has failed; its log says how."), request)

    async def _answer(self, request: web.Request) -> web.Response:
        access = Access(request.headers, self._rules(), request.host, self._now_s())
        self._on_authorized(request)
        target = parse_target(request.raw_path)
        verb = self._verbs.get((request.method, target.what))
        if verb is None:
            raise NotAllowed(f"{request.method} is nothing that can be done with this resource.")
        is_rule_read = request.method == "GET" and target.what in (What.RULE, What.RULES)
        rights = (Right.MANAGE, Right.LISTEN) if is_rule_read else (Right.MANAGE,)
        access.check(request.method, target.path, *rights)
        asked = Asked(
            target=target,
            access=access,
            base=f"{request.scheme}://{request.host}",
            host=request.host,
            query={name.lower(): value for name, value in request.query.items()},
            body=await _body(request),
            etag=request.headers.get("If-Match", ""),
        )
        return await verb(asked)

    # -- reading

    async def _get_namespace(self, asked: Asked) -> web.Response:
        namespace = self._entities.namespace()
        node = namespace_node(namespace, namespace.name)
        return _entry_response(asked, "$namespaceinfo", namespace.name, node, NEVER, NEVER)

    async def _list_entities(self, asked: Asked) -> web.Response:
        namespace = self._entities.namespace()
        is_queues = asked.target.what is What.QUEUES
        return await self._feed(asked, namespace.queues if is_queues else namespace.topics)

    async def _list_subscriptions(self, asked: Asked) -> web.Response:
        topic = self._found(asked.target.entity, model.Topic)
        assert isinstance(topic, model.Topic)
        return await self._feed(asked, topic.subscriptions)

    async def _feed(self, asked: Asked, entities: Sequence[model.Entity]) -> web.Response:
        page, next_url = _page(asked, entities)
        counts = await self._counter.counts(page)
        entries = [
            _entry(asked, each.path, each.name, self._node(asked, each, counted), each)
            for each, counted in zip(page, counts, strict=True)
        ]
        return _feed_response(asked, entries, next_url)

    async def _list_rules(self, asked: Asked) -> web.Response:
        subscription = self._subscription(asked)
        page, next_url = _page(asked, subscription.rules)
        entries = [
            _entry(
                asked,
                f"{subscription.path}/Rules/{rule.name}",
                rule.name,
                rule_node(rule, subscription.created_at),
                subscription,
            )
            for rule in page
        ]
        return _feed_response(asked, entries, next_url)

    async def _get_entity(self, asked: Asked) -> web.Response:
        entity = self._find(asked.target.entity)
        if entity is None:
            text = nothing_text(asked.url(asked.target.path), _now())
            return web.Response(text=text, headers={"Content-Type": _FEED_TYPE})
        return await self._described(asked, entity)

    async def _get_subscription(self, asked: Asked) -> web.Response:
        return await self._described(asked, self._subscription(asked))

    async def _get_rule(self, asked: Asked) -> web.Response:
        subscription = self._subscription(asked)
        return _rule_response(asked, subscription, _rule_of(subscription, asked.target), 200)

    async def _described(
        self, asked: Asked, entity: model.Entity, status: int = 200
    ) -> web.Response:
        (counts,) = await self._counter.counts([entity])
        node = self._node(asked, entity, counts)
        times = entity.created_at or NEVER, entity.updated_at or NEVER
        return _entry_response(asked, entity.path, entity.name, node, *times, status=status)

    def _node(self, asked: Asked, entity: model.Entity, counts: Counts) -> Node:
        facts = Facts(
            address=f"sb://{asked.host}", tier=self._entities.namespace().tier, counts=counts
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

    def _found(self, path: str, kind: type[model.Entity]) -> model.Entity:
        entity = self._find(path)
        if not isinstance(entity, kind):
            raise _not_found(path)
        return entity

    def _subscription(self, asked: Asked) -> model.Subscription:
        path = f"{asked.target.entity}/Subscriptions/{asked.target.subscription}"
        subscription = self._found(path, model.Subscription)
        assert isinstance(subscription, model.Subscription)
        return subscription

    # -- writing

    async def _put_entity(self, asked: Asked) -> web.Response:
        description = read_description(asked.body)
        identity = _identity(asked.target, description)
        now = _now()
        if not asked.etag:
            entity = with_keys(read_entity(description, identity), ())
            self._check(asked, entity)
            made = replace(entity, created_at=now, updated_at=now)
            return await self._described(asked, await self._entities.create(made), 201)
        there = self._entities.get(asked.target.path)
        if asked.etag not in ("*", _etag(there.updated_at)):
            raise EntityConflict("The entity has changed since it was read.")
        if kind_of(there) is not described_kind(description):
            raise EntityConflict(f"{there.path!r} is there, and is no such thing.")
        entity = read_entity(description, {**identity, "name": there.name}, there)
        _check_fixed(there, entity)
        entity = with_keys(entity, getattr(there, "authorization_rules", ()))
        self._check(asked, entity)
        changed = await self._entities.update(replace(entity, updated_at=now))
        return await self._described(asked, changed)

    def _check(self, asked: Asked, entity: model.Entity) -> None:
        """Refuse what the namespace, or the client's rights, do not allow."""
        check_message_size(entity, self._entities.namespace().tier)
        for name, field in (
            ("ForwardTo", "forward_to"),
            ("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to"),
        ):
            target = getattr(entity, field, "")
            if not target:
                continue
            if field == "forward_to" and getattr(entity, "requires_session", False):
                raise ArgumentError(
                    f"SubCode=40000. Bad Request: {entity.path!r} requires sessions, and such an "
                    "entity cannot forward its messages."
                )
            is_itself = target.lower() == entity.path.lower()  # which Azure takes
            if not is_itself and not isinstance(self._find(target), model.Queue | model.Topic):
                raise ArgumentError(
                    "SubCode=40400. The auto forwarding destination entity does not exist: "
                    f"{name} is {target!r}; there is no such queue or topic."
                )
            asked.access.check_target(name, target)

    async def _delete_entity(self, asked: Asked) -> web.Response:
        await self._entities.delete(asked.target.path)
        return web.Response()

    async def _put_rule(self, asked: Asked) -> web.Response:
        description = read_description(asked.body)
        if description.name != "RuleDescription":
            raise ArgumentError(f"A rule is a RuleDescription, not a {description.name}.")
        rule = read_rule(description, asked.target.rule)
        subscription = self._subscription(asked)
        if asked.etag:
            await self._entities.update_rule(subscription.path, rule)
        else:
            await self._entities.create_rule(subscription.path, rule)
        return _rule_response(asked, subscription, rule, 200 if asked.etag else 201)

    async def _delete_rule(self, asked: Asked) -> web.Response:
        await self._entities.delete_rule(self._subscription(asked).path, asked.target.rule)
        return web.Response()


async def _body(request: web.Request) -> bytes:
    if request.method != "PUT":
        return b""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ArgumentError(f"A description has {BODY_BYTES_MAX} bytes at most.") from None


def _identity(target: Target, description: Element) -> dict[str, str]:
    """Return the name of what a request describes; it must be what its path is for."""
    kind = described_kind(description)
    is_subscription = target.what is What.SUBSCRIPTION
    if kind is None or (kind is Kind.SUBSCRIPTION) is not is_subscription:
        raise ArgumentError(f"The body describes a {description.name}, which is not at this path.")
    if is_subscription:
        return {"topic": target.entity, "name": target.subscription}
    return {"name": target.entity}


def _rule_of(subscription: model.Subscription, target: Target) -> model.Rule:
    for rule in subscription.rules:
        if rule.name.lower() == target.rule.lower():
            return rule
    raise _not_found(target.path)


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


def _page(asked: Asked, things: Sequence[Thing]) -> tuple[Sequence[Thing], str]:
    """Return the part of a list that is asked for, and the URL of the next."""
    skip = _count(asked, "$skip", 0)
    top = min(_count(asked, "$top", _PAGE), PAGE_MAX)
    page = things[skip : skip + top]
    has_more = skip + top < len(things) and bool(page)
    return page, asked.url(asked.target.path, skip=skip + top, top=top) if has_more else ""


def _count(asked: Asked, name: str, default: int) -> int:
    text = asked.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ArgumentError(f"{name} is {text[:20]!r}; it is a whole number.")
    return int(text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _etag(updated_at: str) -> str:
    digits = "".join(each for each in updated_at if each.isdigit())
    return f'"{digits or 0}"'


def _entry(asked: Asked, path: str, title: str, node: Node, entity: model.Entity) -> Entry:
    return Entry(
        url=asked.url(path),
        title=title,
        published=entity.created_at or NEVER,
        updated=entity.updated_at or NEVER,
        description=node,
    )


def _entry_response(
    asked: Asked,
    path: str,
    title: str,
    node: Node,
    published: str,
    updated: str,
    *,
    status: int = 200,
) -> web.Response:
    entry = Entry(
        url=asked.url(path), title=title, published=published, updated=updated, description=node
    )
    headers = {"Content-Type": _ENTRY_TYPE, "ETag": _etag(updated)}
    return web.Response(text=entry_text(entry, asked.host), status=status, headers=headers)


def _rule_response(
    asked: Asked, subscription: model.Subscription, rule: model.Rule, status: int
) -> web.Response:
    node = rule_node(rule, subscription.created_at)
    path = f"{subscription.path}/Rules/{rule.name}"
    times = subscription.created_at or NEVER, subscription.updated_at or NEVER
    return _entry_response(asked, path, rule.name, node, *times, status=status)


def _feed_response(asked: Asked, entries: Sequence[Entry], next_url: str) -> web.Response:
    title = asked.target.path.rpartition("/")[2]
    url = asked.url(asked.target.path)
    text = feed_text(title, url, _now(), entries, asked.host, next_url)
    return web.Response(text=text, headers={"Content-Type": _FEED_TYPE})


def _not_found(path: str) -> EntityNotFound:
    return EntityNotFound(f"The entity '{path}' is not there.")


def _refused(error: ServiceBusError, request: web.Request) -> web.Response:
    status, text = refusal(error, request.host, request.path.strip("/"))
    return web.Response(text=text, status=status, headers={"Content-Type": CONTENT_TYPE})
