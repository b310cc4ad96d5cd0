"""What creates, updates and deletes write to RabbitMQ's policies, and whom these take."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.api import Management
from bridge.model import entity as model
from bridge.topology.flavour import queue_settings
from bridge.topology.resources import Policy, Queue, Value
from bridge.topology.sharing import EVERYWHERE, Sharing, share
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.test_in_force import confirming_on, deliveries_of_one

WITHIN_S = 120.0

MANY = [hashlib.sha512(str(number).encode()).hexdigest()[:120] for number in range(16)]
"""Names of queues: a list has room for 8 of them."""


class Writes:
    """The names of the policies that a bridge writes, with `-` before a deleted one."""

    def __init__(self, management: Management) -> None:
        self.names: list[str] = []
        self._put, self._delete = management.put_policy, management.delete_policy
        management.put_policy = self._on_put  # type: ignore[method-assign]
        management.delete_policy = self._on_delete  # type: ignore[method-assign]

    async def _on_put(self, policy: Policy) -> None:
        self.names.append(policy.name)
        await self._put(policy)

    async def _on_delete(self, name: str, *, operator: bool = False) -> None:
        self.names.append("-" + name)
        await self._delete(name, operator=operator)

    async def of(self, work: Awaitable[object]) -> list[str]:
        """Return what is written until some work is done."""
        before = len(self.names)
        await work
        return self.names[before:]


async def in_force(door: Door, queue: str) -> Mapping[str, Any]:
    """The settings by policy that RabbitMQ shows of a queue, some seconds late."""
    row = await door.management.queue(queue)
    assert row is not None
    return dict(row.get("effective_policy_definition") or {})


def in_use(max_delivery_count: int) -> dict[str, Value]:
    """The settings of a queue whose other properties are Azure's defaults."""
    return dict(queue_settings(model.Queue(name="x", max_delivery_count=max_delivery_count)))


async def shows_limit(door: Door, queue: str, limit: int) -> None:
    """Wait until RabbitMQ shows a delivery limit."""

    async def is_shown() -> bool:
        return (await in_force(door, queue)).get("delivery-limit") == limit

    await until(is_shown, within_s=WITHIN_S)


async def checked(door: Door) -> None:
    """Wait for the end of a check of all definitions that begins now."""
    state = door.namespace.state
    for _ in range(2):  # one may be under way
        before = state.findings
        door.namespace.reconciler.due.wake()
        await until(lambda before=before: state.findings is not before, within_s=WITHIN_S)


@pytest_asyncio.fixture(
    params=[
        pytest.param(False, id="shared virtual host"),
        pytest.param(True, id="own virtual host", marks=pytest.mark.long),
    ]
)
async def door(
    request: pytest.FixtureRequest, endpoint: Endpoint, broker: Broker
) -> AsyncIterator[Door]:
    """A bridge with queues of equal settings, without and with a virtual host of its own."""
    queues = [model.Queue(name=each) for each in MANY]
    async with open_door(
        endpoint, broker.management_url, *queues, owns_vhost=request.param
    ) as opened:
        yield opened


@pytest.mark.long
async def test_a_create_of_settings_in_use_writes_one_list_or_nothing(door: Door) -> None:
    """Before, between and behind the others; RabbitMQ has the settings in force."""
    writes = Writes(door.management)
    administration = door.namespace.administration
    is_own = EVERYWHERE in {each.name for each in await door.management.policies()}
    for name in ("0" * 120, "8" * 120, "z" * 120):
        written = await writes.of(administration.create(model.Queue(name=name)))
        assert len(written) == (0 if is_own else 1), written
        await shows_limit(door, name, 9)
    written = await writes.of(administration.create(model.Queue(name="b", max_delivery_count=3)))
    assert written == ["busbridge.limit-2.size-1073741824"]
    await shows_limit(door, "b", 2)
    await shows_limit(door, "0" * 120, 9)


@pytest.mark.long
async def test_an_update_writes_the_lists_that_gain_and_lose_a_queue_and_no_other(
    door: Door,
) -> None:
    """And a way back; nothing at all when settings of RabbitMQ's stay."""
    writes = Writes(door.management)
    administration = door.namespace.administration
    queue = await administration.create(model.Queue(name="orders"))
    for count in (3, 10):
        written = await writes.of(administration.update(replace(queue, max_delivery_count=count)))
        assert len(written) <= 2, written
        await shows_limit(door, queue.name, count - 1)
    assert await writes.of(administration.update(replace(queue, user_metadata="x"))) == []


async def test_a_deleted_entitys_name_leaves_the_lists(door: Door, confirming: Channel) -> None:
    """A user's queue of that name is not taken then."""
    administration = door.namespace.administration
    await administration.create(model.Queue(name="theirs", max_delivery_count=3))
    await administration.delete("theirs")

    async def is_off() -> bool:
        door.namespace.reconciler.due.wake()
        policies = await door.management.policies()
        return not any("theirs" in each.pattern for each in policies)

    await until(is_off, within_s=WITHIN_S)
    await confirming.declarations.declare_queue(
        Queue(name="theirs", arguments={"x-queue-type": "quorum"})
    )

    async def is_free() -> bool:
        door.namespace.reconciler.due.wake()
        return not await in_force(door, "theirs")

    await until(is_free, within_s=WITHIN_S)


async def test_max_delivery_count_is_in_force_when_creates_at_once_are_answered(
    door: Door, connection: Connection
) -> None:
    """Twelve at once, of two kinds."""

    async def one(number: int) -> int:
        channel = await confirming_on(connection)
        queue = model.Queue(name=f"new-{number}", max_delivery_count=10 - number % 2)
        await door.namespace.administration.create(queue)
        return await deliveries_of_one(channel, queue.name, 20)

    counts = await asyncio.gather(*map(one, range(12)))
    assert counts == [10 - number % 2 for number in range(12)]


async def test_what_another_version_has_listed_stays_as_it_is(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The lists may have any contents: the wanted settings are in force."""
    queues = [model.Queue(name=name) for name in ("a", "b", "c", "d", "e")]
    settings = {each.name: in_use(10) for each in queues}
    older = share(settings, Sharing(names_max=2))
    assert len(older) == 3
    async with Management(endpoint, broker.management_url) as management:
        for policy in older:
            await management.put_policy(policy)
    async with open_door(endpoint, broker.management_url, *queues) as door:
        there = await door.management.policies()
        assert [each for each in there if "limit-9" in each.name] == list(older)
        writes = Writes(door.management)
        assert await writes.of(checked(door)) == []
        await door.namespace.administration.create(model.Queue(name="bb"))
        assert writes.names == [older[0].name]


async def test_a_users_quorum_queue_is_left_out_when_it_is_found(
    door: Door, confirming: Channel
) -> None:
    """Whether the virtual host is the bridge's own or not; entities keep their settings."""
    theirs = Queue(name="theirs", arguments={"x-queue-type": "quorum"})
    await confirming.declarations.declare_queue(theirs)
    await checked(door)

    async def is_free() -> bool:
        return not await in_force(door, "theirs")

    await until(is_free, within_s=WITHIN_S)
    assert await deliveries_of_one(confirming, MANY[0], 20) == 10
    writes = Writes(door.management)
    await checked(door)
    assert writes.names == []
