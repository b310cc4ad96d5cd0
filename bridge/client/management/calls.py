"""Every request to the administration API, and how its answer is read; both lanes send these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from bridge.client.management import reading, writing
from bridge.client.management.errors import ResourceNotFoundError
from bridge.client.management.options import PageOptions
from bridge.client.management.properties import (
    NamespaceProperties,
    QueueProperties,
    SubscriptionProperties,
    TopicProperties,
)
from bridge.client.management.rules import RuleProperties
from bridge.client.mapping import Mapped
from bridge.wire.administration import Request, Response
from bridge.wire.atom.xml import Element

Result = TypeVar("Result")
Described = TypeVar("Described")

QUEUE, TOPIC, SUBSCRIPTION = "QueueDescription", "TopicDescription", "SubscriptionDescription"
QUEUES, TOPICS = "$Resources/Queues", "$Resources/Topics"

ROOTS: dict[type[Mapped], str] = {
    QueueProperties: QUEUE,
    TopicProperties: TOPIC,
    SubscriptionProperties: SUBSCRIPTION,
}
RULE = "RuleDescription"


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request, and how its answer is read; that raises what was refused."""

    request: Request
    read: Callable[[Response], Result]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Described]):
    """A list: how a part of it is asked for, from an index on and of a length."""

    page: Callable[[int, int], Call[tuple[list[Described], tuple[int, int] | None]]]
    start: int
    size: int


class Calls:
    """Makes requests.

    Args:
        host: what the client calls the namespace; URLs of entities begin with `sb://` and this.
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def get(self, path: str, name: str, root: str, made: type[Described]) -> Call[Described]:
        """Ask for an entity.

        Args:
            path: see `path_of`.
            root: the element that describes it.
            made: what it is read as: properties, or runtime properties.
        """

        def read(response: Response) -> Described:
            found = reading.description_of(reading.root_of(response), root)
            if found is None:
                kind = root.removesuffix("Description")
                raise ResourceNotFoundError(f"{kind} '{name}' does not exist", 404)
            return reading.described(made, name, found)

        return Call(self._request("GET", path), read)

    def get_rule(self, path: str, name: str) -> Call[RuleProperties]:
        """Ask for a rule."""
        return Call(self._request("GET", path), lambda response: _rule(name, response))

    def get_namespace(self) -> Call[NamespaceProperties]:
        """Ask for the namespace."""

        def read(response: Response) -> NamespaceProperties:
            root = reading.root_of(response)
            found = reading.description_of(root, "NamespaceInfo")
            assert found is not None
            return reading.namespace(root.text_of("title"), found)

        return Call(self._request("GET", "$namespaceinfo"), read)

    def create(
        self, path: str, name: str, made: type[Described], options: Mapping[str, Any]
    ) -> Call[Described]:
        """Create an entity.

        Raises:
            TypeError: an option is no property of it.
        """
        given = _with_defaults(made, name, options)
        root = ROOTS[type(given)]
        body = writing.entity_document(root, given)
        return Call(self._request("PUT", path, body=body), self.get(path, name, root, made).read)

    def update(
        self, path: str, made: type[Mapped], given: object, options: Mapping[str, Any]
    ) -> Call[None]:
        """Describe an entity anew.

        Args:
            given: all its properties, or a mapping of them; `options` come before these.
        """
        entity = _with(properties_of(made, given), options)
        body = writing.entity_document(ROOTS[made], entity)
        return Call(self._request("PUT", path, body=body, etag="*"), _done)

    def put_rule(self, path: str, rule: RuleProperties, *, is_new: bool) -> Call[RuleProperties]:
        """Create a rule, or change one that is there."""
        body = writing.rule_document(rule)
        request = self._request("PUT", path, body=body, etag="" if is_new else "*")
        return Call(request, lambda response: _rule(rule.name, response))

    def delete(self, path: str) -> Call[None]:
        """Delete an entity or a rule."""
        return Call(self._request("DELETE", path), _done)

    def entities(
        self, path: str, root: str, made: type[Described], options: PageOptions
    ) -> Listing[Described]:
        """List entities."""
        return self._listing(
            path, root, lambda name, found: reading.described(made, name, found), options
        )

    def rules(self, path: str, options: PageOptions) -> Listing[RuleProperties]:
        """List the rules of a subscription."""
        return self._listing(path, RULE, reading.rule, options)

    def _listing(
        self,
        path: str,
        root: str,
        convert: Callable[[str, Element], Described],
        options: PageOptions,
    ) -> Listing[Described]:
        unknown = sorted(set(options) - {"start_index", "max_page_size"})
        if unknown:
            raise TypeError(f"A list has no option {', '.join(unknown)}.")

        def page(skip: int, top: int) -> Call[tuple[list[Described], tuple[int, int] | None]]:
            def read(
                response: Response,
            ) -> tuple[list[Described], tuple[int, int] | None]:
                found = reading.page_of(reading.root_of(response), root)
                return [convert(*each) for each in found.entries], found.next

            query = {"$skip": str(skip), "$top": str(top)}
            return Call(self._request("GET", path, query=query), read)

        return Listing(page, options.get("start_index", 0), options.get("max_page_size", 100))

    def _request(self, method: str, path: str, **more: Any) -> Request:
        return Request(method=method, path=path, host=self._host, **more)


def path_of(entity: str, *below: str) -> str:
    """Return the path of an entity or a rule, percent-encoded.

    Args:
        below: of a topic a subscription, of that a rule.

    Raises:
        TypeError: a name is no text; without it the path would name what is above.
    """
    for name in (entity, *below):
        if not isinstance(name, str):
            raise TypeError(f"A name is a str, not {type(name).__name__}.")
    if not entity:
        raise ValueError("A name has a character at least.")
    steps = zip(("Subscriptions", "Rules"), below, strict=False)
    return "/".join((quote(entity), *(f"{step}/{quote(name, safe='')}" for step, name in steps)))


def properties_of(made: type[Result], given: object) -> Result:
    """Return properties that were given as they are, or as a mapping."""
    if isinstance(given, made):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"An update is given {made.__name__}, or a mapping of its names.")
    return made(**given)


def name_of(made: type[Any], given: object) -> str:
    """Return the name in properties, given as such or as a mapping."""
    name: str = properties_of(made, given).name
    return name


def _with_defaults(made: type[Any], name: str, options: Mapping[str, Any]) -> Mapped:
    names = {each.name for each in fields(made)} - {"name"}
    if unknown := sorted(set(options) - names):
        raise TypeError(f"{made.__name__} has no {', '.join(unknown)}.")
    properties: Mapped = made(name, **dict.fromkeys(names) | dict(options))
    return properties


def _with(given: Mapped, options: Mapping[str, Any]) -> Mapped:
    if unknown := sorted(set(options) - set(given.keys())):
        raise TypeError(f"{type(given).__name__} has no {', '.join(unknown)}.")
    return type(given)(**dict(given.items()) | dict(options))


def _rule(name: str, response: Response) -> RuleProperties:
    root = reading.root_of(response)
    found = reading.description_of(root, RULE)
    if found is None:
        raise ResourceNotFoundError(f"Rule '{name}' does not exist", 404)
    return reading.rule(name, found)


def _done(response: Response) -> None:
    reading.root_of(response)
