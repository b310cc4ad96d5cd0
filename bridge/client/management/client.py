"""The synchronous `ServiceBusAdministrationClient`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar, Unpack

from bridge.client.core.call import Call
from bridge.client.core.options import ClientOptions
from bridge.client.management.calls import AdministrationCalls, PagedCall
from bridge.client.management.enums import ApiVersion
from bridge.client.management.options import (
    PageOptions,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
)
from bridge.client.management.properties import (
    NamespaceProperties,
    QueueProperties,
    SubscriptionProperties,
    TopicProperties,
)
from bridge.client.management.rules import Filter, RuleProperties, SqlRuleAction
from bridge.client.management.runtime import (
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
)
from bridge.client.sync.client import ServiceBusClient
from bridge.wire.atom.client import PageSpan

Result = TypeVar("Result")
Described = TypeVar("Described")


class ItemPaged(Generic[Described]):
    """An iterator over a list, read page by page as needed."""

    def __init__(
        self, client: ServiceBusAdministrationClient, listing: PagedCall[Described]
    ) -> None:
        self._client = client
        self._listing = listing
        self._items: Iterator[Described] | None = None

    def by_page(self) -> Iterator[Iterator[Described]]:
        """Yield the pages."""
        place: PageSpan | None = self._listing.first
        while place is not None:
            items, place = self._client._ask(self._listing.page(*place))
            yield iter(items)

    def __iter__(self) -> ItemPaged[Described]:
        return self

    def __next__(self) -> Described:
        if self._items is None:
            self._items = (item for page in self.by_page() for item in page)
        return next(self._items)


class ServiceBusAdministrationClient:
    """Creates, changes, lists and deletes the entities of a virtual host, under the SDK's name.

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

    def __enter__(self) -> ServiceBusAdministrationClient:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        return self._client.close()

    def get_namespace_properties(self) -> NamespaceProperties:
        """Return the properties of the namespace."""
        return self._ask(self._calls.get_namespace())

    # -- queues

    def create_queue(self, queue_name: str, **options: Unpack[QueueOptions]) -> QueueProperties:
        """Create a queue; omitted options have the service's defaults."""
        return self._ask(self._calls.create(QueueProperties, options, queue_name))

    def get_queue(self, queue_name: str) -> QueueProperties:
        """Return a queue's properties."""
        return self._ask(self._calls.get(QueueProperties, queue_name))

    def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """Return a queue's times and counts."""
        return self._ask(self._calls.get(QueueRuntimeProperties, queue_name))

    def update_queue(
        self, queue: QueueProperties | Mapping[str, Any], **options: Unpack[QueueOptions]
    ) -> None:
        """Change a queue to the given properties; options override these."""
        return self._ask(self._calls.update(QueueProperties, queue, options))

    def delete_queue(self, queue_name: str) -> None:
        """Delete a queue with all its messages."""
        return self._ask(self._calls.delete(queue_name))

    def list_queues(self, **options: Unpack[PageOptions]) -> ItemPaged[QueueProperties]:
        """List the queues."""
        return ItemPaged(self, self._calls.listing(QueueProperties, options))

    def list_queues_runtime_properties(
        self, **options: Unpack[PageOptions]
    ) -> ItemPaged[QueueRuntimeProperties]:
        """List the queues' times and counts."""
        return ItemPaged(self, self._calls.listing(QueueRuntimeProperties, options))

    # -- topics

    def create_topic(self, topic_name: str, **options: Unpack[TopicOptions]) -> TopicProperties:
        """Create a topic; omitted options have the service's defaults."""
        return self._ask(self._calls.create(TopicProperties, options, topic_name))

    def get_topic(self, topic_name: str) -> TopicProperties:
        """Return a topic's properties."""
        return self._ask(self._calls.get(TopicProperties, topic_name))

    def get_topic_runtime_properties(self, topic_name: str) -> TopicRuntimeProperties:
        """Return a topic's times and counts."""
        return self._ask(self._calls.get(TopicRuntimeProperties, topic_name))

    def update_topic(
        self, topic: TopicProperties | Mapping[str, Any], **options: Unpack[TopicOptions]
    ) -> None:
        """Change a topic to the given properties; options override these."""
        return self._ask(self._calls.update(TopicProperties, topic, options))

    def delete_topic(self, topic_name: str) -> None:
        """Delete a topic with its subscriptions and all their messages."""
        return self._ask(self._calls.delete(topic_name))

    def list_topics(self, **options: Unpack[PageOptions]) -> ItemPaged[TopicProperties]:
        """List the topics."""
        return ItemPaged(self, self._calls.listing(TopicProperties, options))

    def list_topics_runtime_properties(
        self, **options: Unpack[PageOptions]
    ) -> ItemPaged[TopicRuntimeProperties]:
        """List the topics' times and counts."""
        return ItemPaged(self, self._calls.listing(TopicRuntimeProperties, options))

    # -- subscriptions

    def create_subscription(
        self, topic_name: str, subscription_name: str, **options: Unpack[SubscriptionOptions]
    ) -> SubscriptionProperties:
        """Create a subscription to every message; omitted options have the defaults."""
        names = topic_name, subscription_name
        return self._ask(self._calls.create(SubscriptionProperties, options, *names))

    def get_subscription(self, topic_name: str, subscription_name: str) -> SubscriptionProperties:
        """Return a subscription's properties."""
        return self._ask(self._calls.get(SubscriptionProperties, topic_name, subscription_name))

    def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str
    ) -> SubscriptionRuntimeProperties:
        """Return a subscription's times and counts."""
        return self._ask(
            self._calls.get(SubscriptionRuntimeProperties, topic_name, subscription_name)
        )

    def update_subscription(
        self,
        topic_name: str,
        subscription: SubscriptionProperties | Mapping[str, Any],
        **options: Unpack[SubscriptionOptions],
    ) -> None:
        """Change a subscription to the given properties; options override these."""
        made = SubscriptionProperties
        return self._ask(self._calls.update(made, subscription, options, topic_name))

    def delete_subscription(self, topic_name: str, subscription_name: str) -> None:
        """Delete a subscription with all its messages."""
        return self._ask(self._calls.delete(topic_name, subscription_name))

    def list_subscriptions(
        self, topic_name: str, **options: Unpack[PageOptions]
    ) -> ItemPaged[SubscriptionProperties]:
        """List the subscriptions of a topic."""
        return ItemPaged(self, self._calls.listing(SubscriptionProperties, options, topic_name))

    def list_subscriptions_runtime_properties(
        self, topic_name: str, **options: Unpack[PageOptions]
    ) -> ItemPaged[SubscriptionRuntimeProperties]:
        """List the times and counts of a topic's subscriptions."""
        return ItemPaged(
            self, self._calls.listing(SubscriptionRuntimeProperties, options, topic_name)
        )

    # -- rules

    def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        *,
        filter: Filter | None = None,  # noqa: A002 (the SDK's name)
        action: SqlRuleAction | None = None,
    ) -> RuleProperties:
        """Create a rule; a rule without a filter takes every message."""
        rule = RuleProperties(rule_name, filter=filter, action=action, created_at_utc=None)
        return self._ask(self._calls.put_rule(topic_name, subscription_name, rule))

    def get_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> RuleProperties:
        """Return a rule."""
        names = topic_name, subscription_name, rule_name
        return self._ask(self._calls.get(RuleProperties, *names))

    def update_rule(
        self, topic_name: str, subscription_name: str, rule: RuleProperties | Mapping[str, Any]
    ) -> None:
        """Change a rule."""
        return self._ask(self._calls.change_rule(topic_name, subscription_name, rule))

    def delete_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> None:
        """Delete a rule."""
        return self._ask(self._calls.delete(topic_name, subscription_name, rule_name))

    def list_rules(
        self, topic_name: str, subscription_name: str, **options: Unpack[PageOptions]
    ) -> ItemPaged[RuleProperties]:
        """List the rules of a subscription."""
        names = topic_name, subscription_name
        return ItemPaged(self, self._calls.listing(RuleProperties, options, *names))

    def _ask(self, call: Call[Result]) -> Result:
        result: Result = self._client._run(call)
        return result
