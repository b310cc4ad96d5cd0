"""What Azure's tests are decorated with: entities made before a test and removed after it.

Stands where the tests expect `servicebus_preparer`, `sb_env_loader` and `devtools_testutils`,
which make resources in a subscription of Azure. Here the administration API of the bridge makes
them.
"""

from __future__ import annotations

import contextlib
import inspect
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

from tests.parity import addresses

SERVICEBUS_ENDPOINT_SUFFIX = addresses.SUFFIX
Test = Callable[..., Any]


@contextlib.contextmanager
def administration() -> Iterator[ServiceBusAdministrationClient]:
    """Have a client of the administration API; that it looks for the bridge does not count."""
    before = addresses.lookups.count
    string = addresses.connection_string()
    with ServiceBusAdministrationClient.from_connection_string(string) as client:
        yield client
    addresses.lookups.count = before


class Preparer:
    """A decorator that adds arguments to a test and takes back what it made."""

    def __call__(self, test: Test) -> Test:
        """Return the test with arguments of this preparer; pytest sees only parameters of marks."""
        if inspect.iscoroutinefunction(test):

            async def prepared(instance: Any, **given: Any) -> None:
                arguments, remove = self.prepare(given)
                try:
                    await test(instance, **_accepted(test, given | arguments))
                finally:
                    remove()
        else:

            def prepared(instance: Any, **given: Any) -> None:  # type: ignore[misc]
                arguments, remove = self.prepare(given)
                try:
                    test(instance, **_accepted(test, given | arguments))
                finally:
                    remove()

        return _named_after(prepared, test)

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        """Return the arguments, and what removes the things behind them."""
        raise NotImplementedError


def _accepted(test: Test, arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(test).parameters
    if "prepared" in getattr(test, "__dict__", {}) or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    ):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def _named_after(prepared: Any, test: Any) -> Test:
    marks = list(getattr(test, "pytestmark", ()))
    names = [
        name.strip()
        for mark in marks
        if mark.name == "parametrize"
        for name in mark.args[0].split(",")
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    prepared.__signature__ = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(name, keyword) for name in names),
        ]
    )
    prepared.prepared = True
    prepared.__name__, prepared.__qualname__ = test.__name__, test.__qualname__
    prepared.__module__, prepared.__doc__ = test.__module__, test.__doc__
    prepared.pytestmark = marks
    return prepared  # type: ignore[no-any-return]


def _nothing() -> None:
    pass


class Group(Preparer):
    """A resource group, of which a bridge knows none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        return {"resource_group": SimpleNamespace(name="none"), "location": "here"}, _nothing


class Namespace(Preparer):
    """The bridge's namespace."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        name = "servicebus_namespace"
        return {
            name: SimpleNamespace(name=addresses.NAMESPACE),
            f"{name}_connection_string": addresses.connection_string(),
            f"{name}_key_name": addresses.RULE,
            f"{name}_primary_key": addresses.RULE,
        }, _nothing


class Entity(Preparer):
    """A queue, topic or subscription; a cached one is shared by tests that want it equal."""

    kind: ClassVar[str]
    names: ClassVar[dict[tuple[object, ...], str]] = {}

    def __init__(
        self,
        name_prefix: str = "",
        *,
        use_cache: bool = False,
        parameter_name: str = "",
        **options: Any,
    ) -> None:
        self._prefix = name_prefix or "parity"
        self._is_cached = use_cache
        self._parameter = parameter_name or f"servicebus_{self.kind}"
        self._options = {
            name: value
            for name, value in options.items()
            if not name.startswith(("random_name", "servicebus_", "resource_"))
        }

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        key = (self.kind, self._prefix, *sorted((k, str(v)) for k, v in self._options.items()))
        fresh = f"{self._prefix}{uuid.uuid4().hex[:8]}"
        name = self.names.setdefault(key, fresh) if self._is_cached else fresh
        with administration() as client:
            try:
                self.create(client, name, given)
            except ResourceExistsError:
                if not self._is_cached:
                    raise
        remove = _nothing if self._is_cached else partial(self._remove, name, given)
        return {self._parameter: SimpleNamespace(name=name)}, remove

    def _remove(self, name: str, given: dict[str, Any]) -> None:
        with administration() as client, contextlib.suppress(ResourceNotFoundError):
            self.delete(client, name, given)

    def create(self, client: Any, name: str, given: dict[str, Any]) -> None:
        """Make the entity."""
        raise NotImplementedError

    def delete(self, client: Any, name: str, given: dict[str, Any]) -> None:
        """Delete it."""
        raise NotImplementedError


class QueueEntity(Entity):
    """A queue."""

    kind = "queue"

    def create(self, client: Any, name: str, given: dict[str, Any]) -> None:
        client.create_queue(name, **{"lock_duration": "PT30S"} | self._options)

    def delete(self, client: Any, name: str, given: dict[str, Any]) -> None:
        client.delete_queue(name)


class TopicEntity(Entity):
    """A topic."""

    kind = "topic"

    def create(self, client: Any, name: str, given: dict[str, Any]) -> None:
        client.create_topic(name, **self._options)

    def delete(self, client: Any, name: str, given: dict[str, Any]) -> None:
        client.delete_topic(name)


class SubscriptionEntity(Entity):
    """A subscription of the topic prepared before it."""

    kind = "subscription"

    def create(self, client: Any, name: str, given: dict[str, Any]) -> None:
        topic = given["servicebus_topic"].name
        client.create_subscription(topic, name, **{"lock_duration": "PT60S"} | self._options)

    def delete(self, client: Any, name: str, given: dict[str, Any]) -> None:
        client.delete_subscription(given["servicebus_topic"].name, name)


class NamespaceRule(Preparer):
    """A rule of the namespace; the bridge was started with one of each kind."""

    def __init__(self, *_: Any, access_rights: list[str] | None = None, **__: Any) -> None:
        self._rule = addresses.RULE
        for name in ("listen", "send"):
            if access_rights is not None and [each.lower() for each in access_rights] == [name]:
                self._rule = name

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        name = "servicebus_authorization_rule"
        return {
            name: SimpleNamespace(name=self._rule),
            f"{name}_connection_string": addresses.connection_string(self._rule),
        }, _nothing


class QueueRule(Preparer):
    """A rule of the queue prepared before it, with all rights."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        queue, key = given["servicebus_queue"].name, uuid.uuid4().hex
        with administration() as client:
            properties = client.get_queue(queue)
            properties.authorization_rules = [
                AuthorizationRule(
                    type="SharedAccessAuthorizationRule",
                    claim_type="SharedAccessKey",
                    claim_value="None",
                    rights=["Manage", "Send", "Listen"],
                    key_name="parity",
                    primary_key=key,
                    secondary_key=key,
                )
            ]
            client.update_queue(properties)
        name = "servicebus_queue_authorization_rule"
        text = addresses.connection_string("parity", key) + f";EntityPath={queue}"
        return {
            name: SimpleNamespace(name="parity"),
            f"{name}_connection_string": text,
        }, _nothing


class Environment(Preparer):
    """What a live run reads from its environment: a namespace, and entities in it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def prepare(self, given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
        with administration() as client:
            for create in (
                lambda: client.create_topic("parity-topic"),
                lambda: client.create_subscription("parity-topic", "parity-subscription"),
                lambda: client.create_queue("parity-queue"),
            ):
                with contextlib.suppress(ResourceExistsError):
                    create()
        return {
            "servicebus_connection_str": addresses.connection_string(),
            "servicebus_fully_qualified_namespace": addresses.HOST,
            "servicebus_topic_name": "parity-topic",
            "servicebus_subscription_name": "parity-subscription",
            "servicebus_queue_name": "parity-queue",
            "servicebus_sas_policy": addresses.RULE,
            "servicebus_sas_key": addresses.RULE,
            "servicebus_session_queue_name": "parity-session-queue",
            "servicebus_session_id": "parity-session",
            "servicebus_session_queue_sas_policy": addresses.RULE,
            "servicebus_session_queue_sas_key": addresses.RULE,
        }, _nothing


ServiceBusPreparer = Environment
ServiceBusResourceGroupPreparer = CachedServiceBusResourceGroupPreparer = Group
RandomNameResourceGroupPreparer = CachedResourceGroupPreparer = Group
ServiceBusNamespacePreparer = CachedServiceBusNamespacePreparer = Namespace
ServiceBusQueuePreparer = QueueEntity
ServiceBusTopicPreparer = TopicEntity
ServiceBusSubscriptionPreparer = SubscriptionEntity
CachedServiceBusQueuePreparer = partial(QueueEntity, use_cache=True)
CachedServiceBusTopicPreparer = partial(TopicEntity, use_cache=True)
CachedServiceBusSubscriptionPreparer = partial(SubscriptionEntity, use_cache=True)
ServiceBusNamespaceAuthorizationRulePreparer = NamespaceRule
ServiceBusQueueAuthorizationRulePreparer = QueueRule
