"""Administration over RabbitMQ, under the names of azure.servicebus.aio.management; on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from bridge.client.aio.awaited import awaited
from bridge.client.aio.client import ServiceBusClient
from bridge.client.core.call import Call
from bridge.client.core.options import ClientOptions
from bridge.client.management.calls import AdministrationCalls, PagedCall
from bridge.client.management.client import ItemPaged
from bridge.client.management.client import ServiceBusAdministrationClient as Synchronous
from bridge.client.management.enums import ApiVersion
from bridge.wire.atom.client import PageSpan

Given = ParamSpec("Given")
Result = TypeVar("Result")
Described = TypeVar("Described")

__all__ = ["AsyncItemPaged", "ServiceBusAdministrationClient"]


class AsyncItemPaged(Generic[Described]):
    """An iterator over a list, read page by page as needed."""

    def __init__(
        self, client: ServiceBusAdministrationClient, listing: PagedCall[Described]
    ) -> None:
        self._client = client
        self._listing = listing
        self._items: AsyncIterator[Described] | None = None

    async def by_page(self) -> AsyncIterator[Iterator[Described]]:
        """Yield the pages."""
        place: PageSpan | None = self._listing.first
        while place is not None:
            items, place = await self._client._ask(self._listing.page(*place))
            yield iter(items)

    def __aiter__(self) -> AsyncItemPaged[Described]:
        return self

    async def __anext__(self) -> Described:
        if self._items is None:
            self._items = (item async for page in self.by_page() for item in page)
        return await anext(self._items)


def _paged(
    method: Callable[Concatenate[Any, Given], ItemPaged[Described]],
) -> Callable[Concatenate[Any, Given], AsyncItemPaged[Described]]:
    """Return the asynchronous form of a method that lists."""

    @wraps(method)
    def lists(self: Any, /, *given: Given.args, **named: Given.kwargs) -> AsyncItemPaged[Described]:
        return AsyncItemPaged(self, method(self, *given, **named)._listing)

    return lists


class ServiceBusAdministrationClient:
    """Creates, changes, lists and deletes the entities of a virtual host; of one event loop.

    Any bridge does the operations. A bridge's refusal is an `HttpResponseError` or a subclass; if
    no bridge answers or RabbitMQ refuses, the error is of `bridge.client.exceptions`.

    Args:
        fully_qualified_namespace: RabbitMQ's URL, or anything with `rabbitmq_url=` beside it.
        credential: accepted and not used.
        api_version: accepted and not used.
        options: the options of `ServiceBusClient`.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,
        *,
        api_version: str | ApiVersion = ApiVersion.V2024_05,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._client = ServiceBusClient(fully_qualified_namespace, credential, **options)
        self.fully_qualified_namespace = self._client.fully_qualified_namespace
        self._calls = AdministrationCalls(self._client._options.address.authority)

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        api_version: str | ApiVersion = ApiVersion.V2024_05,
        **options: Unpack[ClientOptions],
    ) -> ServiceBusAdministrationClient:
        """Return a client; see `ServiceBusClient.from_connection_string`."""
        return cls(conn_str, None, api_version=api_version, **options)

    async def __aenter__(self) -> ServiceBusAdministrationClient:
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

    close = awaited(Synchronous.close)
    get_namespace_properties = awaited(Synchronous.get_namespace_properties)

    # -- queues

    create_queue = awaited(Synchronous.create_queue)
    get_queue = awaited(Synchronous.get_queue)
    get_queue_runtime_properties = awaited(Synchronous.get_queue_runtime_properties)
    update_queue = awaited(Synchronous.update_queue)
    delete_queue = awaited(Synchronous.delete_queue)
    list_queues = _paged(Synchronous.list_queues)
    list_queues_runtime_properties = _paged(Synchronous.list_queues_runtime_properties)

    # -- topics

    create_topic = awaited(Synchronous.create_topic)
    get_topic = awaited(Synchronous.get_topic)
    get_topic_runtime_properties = awaited(Synchronous.get_topic_runtime_properties)
    update_topic = awaited(Synchronous.update_topic)
    delete_topic = awaited(Synchronous.delete_topic)
    list_topics = _paged(Synchronous.list_topics)
    list_topics_runtime_properties = _paged(Synchronous.list_topics_runtime_properties)

    # -- subscriptions

    create_subscription = awaited(Synchronous.create_subscription)
    get_subscription = awaited(Synchronous.get_subscription)
    get_subscription_runtime_properties = awaited(Synchronous.get_subscription_runtime_properties)
    update_subscription = awaited(Synchronous.update_subscription)
    delete_subscription = awaited(Synchronous.delete_subscription)
    list_subscriptions = _paged(Synchronous.list_subscriptions)
    list_subscriptions_runtime_properties = _paged(
        Synchronous.list_subscriptions_runtime_properties
    )

    # -- rules

    create_rule = awaited(Synchronous.create_rule)
    get_rule = awaited(Synchronous.get_rule)
    update_rule = awaited(Synchronous.update_rule)
    delete_rule = awaited(Synchronous.delete_rule)
    list_rules = _paged(Synchronous.list_rules)

    async def _ask(self, call: Call[Result]) -> Result:
        result: Result = await self._client._run(call)
        return result
