"""Provisioning: what a definition stands on is there for good when the definition is written."""

from __future__ import annotations

import asyncio

import pamqp.base
import pamqp.commands as spec

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.management.api import Management
from bridge.engine.administration.live_resources import read_live
from bridge.engine.administration.provision import provision
from bridge.engine.state import policy_reasons
from bridge.model import entity as model
from bridge.topology import definitions, names
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.resources import Policy
from tests.fixtures.broker import Broker
from tests.fixtures.listed import listed
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import until

NAMESPACE = model.Namespace(queues=(model.Queue(name="orders"),))


def is_last_of_a_fence(method: pamqp.base.Frame) -> bool:
    """Whether this is the change that makes those before it outlast a kill of RabbitMQ."""
    return isinstance(method, spec.Exchange.Delete) and method.exchange == names.DECLARATION_FENCE


async def test_a_definition_is_written_when_all_it_stands_on_is_fenced(
    broker: Broker, vhost: str, endpoint: Endpoint
) -> None:
    """The last change of a fence comes behind every exchange, queue and binding."""
    capabilities = Capabilities.of(broker.version_text)
    wanted = compile_namespace(NAMESPACE, capabilities)
    definition = definitions.parameter_name(vhost, "orders")
    with Relay(broker.url_of(vhost), holds=is_last_of_a_fence) as relay:
        async with Management(endpoint, broker.management_url) as management:
            connection = await Connection.open(parse_url(relay.url), name="test")
            provisioning = asyncio.create_task(
                provision(
                    *(NAMESPACE, model.Namespace(), await read_live(management)),
                    *(capabilities, management, connection.channel),
                )
            )
            await until(lambda: relay.holding.is_set() or provisioning.done())
            assert relay.holding.is_set()
            exchanges = {row["name"] for row in await listed(management, "exchanges")}
            queues = {row["name"] for row in await management.queues()}
            bindings = {
                (row["source"], row["destination"]) for row in await listed(management, "bindings")
            }
            assert {each.name for each in wanted.exchanges} <= exchanges
            assert {each.name for each in wanted.queues} <= queues
            assert {(each.source, each.destination) for each in wanted.bindings} <= bindings
            assert definition not in await management.global_parameters()
            assert not provisioning.done()
            relay.release()

            await provisioning
            assert definition in await management.global_parameters()
            await connection.close()


async def test_the_bridge_gives_its_own_queues_policies_as_apply_does(
    broker: Broker, vhost: str, endpoint: Endpoint
) -> None:
    """Above a catch-all that is there; names with `~` are taken, and read again."""
    namespace = model.Namespace(queues=(model.Queue(name="contoso~orders"),))
    capabilities = Capabilities.of(broker.version_text)
    wanted = compile_namespace(namespace, capabilities)
    async with Management(endpoint, broker.management_url) as management:
        theirs = Policy(name="theirs", pattern=".*", definition={"max-length": 1}, priority=40)
        await management.put_policy(theirs)
        connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
        for _ in range(2):
            live = await read_live(management)
            await provision(
                *(namespace, model.Namespace(), live),
                *(capabilities, management, connection.channel),
            )
        await connection.close()

        assert {each.name for each in (*wanted.policies, theirs)} == {
            each.name for each in await management.policies()
        }
        assert await policy_reasons(wanted.queues, management) == []
