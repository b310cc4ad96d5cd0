"""The management API: what is written is read back, and errors keep RabbitMQ's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost, LoginRefused, ManagementRefused
from bridge.broker.management.api import Management
from bridge.broker.management.http import default_urls
from bridge.topology.resources import Binding, Exchange, Policy, Queue, Value
from tests.fixtures.broker import Broker
from tests.fixtures.listed import listed


def without_login(url: str) -> str:
    """Return a URL that takes its login from the endpoint."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


@pytest_asyncio.fixture
async def management(broker: Broker, endpoint: Endpoint) -> AsyncIterator[Management]:
    """The API, seen from the test's virtual host."""
    async with Management(endpoint, without_login(broker.management_url)) as opened:
        yield opened


@pytest.mark.parametrize(
    "value", ["text", 7, 2**60, 0.5, True, [1, "two", None], {"a": {"b": [{}]}}, {"ä/ ?": "%2F"}]
)
async def test_a_global_parameter_is_read_back(
    management: Management, vhost: str, value: Value
) -> None:
    """Any JSON under any name; one that is not there is None, and deleting it is no error."""
    name = f"{vhost}/a b?%2F"
    await management.put_global_parameter(name, value)
    assert await management.global_parameter(name) == value
    assert (await management.global_parameters())[name] == value
    for _ in range(2):
        await management.delete_global_parameter(name)

    assert await management.global_parameter(name) is None


@pytest.mark.parametrize("operator", [False, True])
async def test_policies_are_written_and_read(management: Management, operator: bool) -> None:
    """A policy of either kind is what it was, in its own list only, and a second PUT replaces."""
    first = Policy(
        name="busbridge/a",
        pattern="^(?:orders)$",
        definition={"message-ttl": 60_000},
        priority=7,
        is_operator=operator,
    )
    await management.put_policy(first)
    assert await management.policies(operator=operator) == [first]
    assert await management.policies(operator=not operator) == []
    second = replace(first, definition={"message-ttl": 5})
    await management.put_policy(second)
    assert await management.policies(operator=operator) == [second]
    for _ in range(2):
        await management.delete_policy("busbridge/a", operator=operator)

    assert await management.policies(operator=operator) == []


async def test_resources_are_listed(management: Management, confirming: Channel) -> None:
    """Queues, exchanges and bindings of the virtual host, with the columns that were asked for."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    await confirming.declarations.declare_queue("orders/$x", arguments=arguments)
    await confirming.declarations.declare_exchange("front", "fanout")
    await confirming.declarations.bind_queue("orders/$x", "front", "key")

    assert await management.queues(["name", "arguments"]) == [
        {"name": "orders/$x", "arguments": arguments}
    ]
    assert "front" in [
        row["name"] for row in await listed(management, "exchanges", ["name", "type"])
    ]
    rows = await listed(management, "bindings")
    binding = {"source": "front", "destination": "orders/$x", "routing_key": "key"}
    assert any(binding.items() <= row.items() for row in rows)
    assert (await management.queue("orders/$x") or {})["type"] == "quorum"
    for _ in range(2):
        await management.delete_queue("orders/$x")
    assert await management.queue("orders/$x") is None


async def test_the_broker_tells_about_itself(broker: Broker, management: Management) -> None:
    """Version, nodes and alarms."""
    assert (await management.overview())["rabbitmq_version"] == broker.version_text
    assert len(await management.nodes()) >= 1
    assert await management.alarms() == []
    assert "rabbit_version" in await management.definitions()


async def test_refusals_keep_rabbitmqs_words(management: Management) -> None:
    """The status and the reason, as plain text."""
    bad = Policy(name="bad", pattern="x", definition={"no-such-key": 1})
    with pytest.raises(ManagementRefused, match='<<"no-such-key">>') as refused:
        await management.put_policy(bad)

    assert (refused.value.code, refused.value.is_retryable) == (400, False)


async def test_a_wrong_login_is_told(broker: Broker, endpoint: Endpoint) -> None:
    """It is not taken for a missing right."""
    wrong = replace(endpoint, password="wrong")
    async with Management(wrong, without_login(broker.management_url)) as management:
        with pytest.raises(LoginRefused):
            await management.overview()


async def test_hosts_are_tried_in_turn(broker: Broker, endpoint: Endpoint) -> None:
    """A host without the plugin is passed over; when none is left, that is told."""
    nobody = "http://127.0.0.1:1"
    both = (nobody, without_login(broker.management_url))
    async with Management(endpoint, both) as management:
        await management.overview()
    async with Management(endpoint, nobody) as management:
        with pytest.raises(ConnectionLost, match="no management API answers"):
            await management.overview()


def test_the_default_is_the_usual_port_of_each_host() -> None:
    """With TLS another one."""
    endpoint = Endpoint(hosts=(("a", 1), ("::1", 2)))

    assert default_urls(endpoint) == ("http://a:15672", "http://[::1]:15672")


async def test_a_binding_that_rabbitmq_cannot_list_is_named_with_the_remedy(
    management: Management, connection: Connection
) -> None:
    """A key with `~` beside arguments: RabbitMQ answers 500, without a word, to any list of it."""
    channel = await connection.channel()
    await channel.declarations.declare_exchange(Exchange(name="rules", type="headers"))
    await channel.declarations.declare_queue(
        Queue(name="contoso", arguments={"x-queue-type": "classic"})
    )
    matching: dict[str, Value] = {"x-match": "all"}
    binding = Binding(source="rules", destination="contoso", routing_key="a~b", arguments=matching)
    await channel.declarations.bind(binding)

    with pytest.raises(ManagementRefused, match=r"with arguments and a '~' in its key.*another"):
        await listed(management, "bindings")

    await channel.declarations.unbind_queue("contoso", "rules", "a~b", arguments=matching)
    assert await listed(management, "bindings")
