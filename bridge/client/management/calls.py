"""Requests to the administration API, and the reading of answers, which raises refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

from bridge.client.core.call import Call
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
from bridge.client.management.runtime import (
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
)
from bridge.wire.administration import Request, Response
from bridge.wire.atom.client import (
    NAMESPACE,
    PageSpan,
    description_of,
    list_path,
    page_of,
    path_of,
)
from bridge.wire.atom.xml import Element

Result = TypeVar("Result")
Described = TypeVar("Described")

_KINDS: dict[type, str] = {
    QueueProperties: "Queue",
    QueueRuntimeProperties: "Queue",
    TopicProperties: "Topic",
    TopicRuntimeProperties: "Topic",
    SubscriptionProperties: "Subscription",
    SubscriptionRuntimeProperties: "Subscription",
    RuleProperties: "Rule",
}
"""The kind that each class describes."""


@dataclass(frozen=True, slots=True)
class PagedCall(Generic[Described]):
    """A list: the call for a page, and the place of the first page."""

    page: Callable[[int, int], Call[tuple[list[Described], PageSpan | None]]]
    first: PageSpan


class AdministrationCalls:
    """Makes the calls of the administration clients.

    Names lead to an entity: queue, or topic, subscription, rule.

    Args:
        host: the client's name of the namespace, behind `sb://` in the entities' URLs.
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def get(self, made: type[Described], *names: str) -> Call[Described]:
        """Ask for an entity or a rule.

        Args:
            made: the class to read the answer as: properties, or runtime properties.
        """
        return self._call(partial(_described, made, names[-1]), "GET", path_of(*names))

    def get_namespace(self) -> Call[NamespaceProperties]:
        """Ask for the namespace."""

        def read(response: Response) -> NamespaceProperties:
            root = reading.root_of(response)
            found = description_of(root, "NamespaceInfo")
            assert found is not None
            return reading.namespace(root.text_of("title"), found)

        return self._call(read, "GET", NAMESPACE)

    def create(
        self, made: type[Described], options: Mapping[str, object], *names: str
    ) -> Call[Described]:
        """Create an entity.

        Raises:
            TypeError: an option is no property of the entity.
        """
        properties: Any = made
        nothing = dict.fromkeys(each.name for each in fields(properties) if each.name != "name")
        given = properties(names[-1], **nothing | dict(options))
        body = writing.entity_document(_root(made), given)
        return self._call(partial(_described, made, names[-1]), "PUT", path_of(*names), body=body)

    def update(
        self, made: type[Any], given: object, options: Mapping[str, object], *topic: str
    ) -> Call[None]:
        """Replace an entity's description.

        Args:
            given: all properties, or a mapping of these; `options` override them.
            topic: a subscription's.

        Raises:
            TypeError: an option is no property of the entity.
        """
        found = _properties_of(made, given)
        body = writing.entity_document(_root(made), replace(found, **options))
        path = path_of(*topic, found.name)
        return self._call(_done, "PUT", path, body=body, etag="*")

    def put_rule(self, topic: str, subscription: str, rule: RuleProperties) -> Call[RuleProperties]:
        """Create a rule."""
        read = partial(_described, RuleProperties, rule.name)
        return self._put_rule(read, topic, subscription, rule)

    def change_rule(self, topic: str, subscription: str, given: object) -> Call[None]:
        """Replace the description of a rule."""
        rule = _properties_of(RuleProperties, given)
        return self._put_rule(_done, topic, subscription, rule, etag="*")

    def delete(self, *names: str) -> Call[None]:
        """Delete an entity or a rule."""
        return self._call(_done, "DELETE", path_of(*names))

    def listing(
        self, made: type[Described], options: PageOptions, *names: str
    ) -> PagedCall[Described]:
        """List entities, or the rules of a subscription.

        Args:
            names: the path of the parent.

        Raises:
            TypeError: a list has no such option.
        """
        return self._pages(made, list_path(_KINDS[made], *names), **options)

    def _put_rule(
        self,
        read: Callable[[Response], Result],
        topic: str,
        subscription: str,
        rule: RuleProperties,
        **more: str,
    ) -> Call[Result]:
        body = writing.rule_document(_root(RuleProperties), rule)
        return self._call(read, "PUT", path_of(topic, subscription, rule.name), body=body, **more)

    def _pages(
        self, made: type[Described], path: str, *, start_index: int = 0, max_page_size: int = 100
    ) -> PagedCall[Described]:
        def read(response: Response) -> tuple[list[Described], PageSpan | None]:
            entries, following = page_of(reading.root_of(response), _root(made))
            return [_read(made, *each) for each in entries], following

        def page(skip: int, top: int) -> Call[tuple[list[Described], PageSpan | None]]:
            query = {"$skip": str(skip), "$top": str(top)}
            return self._call(read, "GET", path, query=query)

        return PagedCall(page, (start_index, max_page_size))

    def _call(
        self, read: Callable[[Response], Result], method: str, path: str, **more: Any
    ) -> Call[Result]:
        request = Request(method=method, path=path, host=self._host, **more)
        return Call("administer", (request,), read=read)


def _properties_of(made: type[Result], given: object) -> Result:
    """Return properties, given as an object or as a mapping."""
    if isinstance(given, made):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"An update is given {made.__name__}, or a mapping of its names.")
    return made(**given)


def _root(made: type) -> str:
    """Return the element that describes a kind."""
    return f"{_KINDS[made]}Description"


def _described(made: type[Described], name: str, response: Response) -> Described:
    found = description_of(reading.root_of(response), _root(made))
    if found is None:
        raise ResourceNotFoundError(f"{_KINDS[made]} '{name}' does not exist", 404)
    return _read(made, name, found)


def _read(made: type[Described], name: str, found: Element) -> Described:
    read: Any = reading.rule if made is RuleProperties else partial(reading.described, made)
    result: Described = read(name, found)
    return result


def _done(response: Response) -> None:
    reading.root_of(response)
