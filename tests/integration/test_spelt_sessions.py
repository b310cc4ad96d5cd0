"""Session ids have no case: in entities made now, and in those of earlier versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.api import Management
from bridge.engine.administration import reconciler
from bridge.engine.api import Complete, Defer, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.errors import (
    EntityConflict,
    EntityNotFound,
    MessageNotFound,
    SessionCannotBeLocked,
)
from bridge.topology import definitions, names, shards
from bridge.wire.sessions import state_properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient, bodies, send

QUEUE = model.Queue(name="orders", requires_session=True, lock_duration_ms=60_000)


async def make_older(endpoint: Endpoint, url: str, count: int) -> model.Queue:
    """Write the definition of a queue as an earlier version has written it."""
    older = replace(QUEUE, session_shards=count, incarnation="older")
    async with Management(endpoint, url) as management:
        name = definitions.parameter_name(endpoint.vhost, older.path)
        await management.put_global_parameter(name, definitions.to_json(older))
    return older


def spelt_apart(queue: model.Queue) -> tuple[str, str]:
    """Two spellings of one id that are in two shards of an older entity."""
    found = (f"order-{number}" for number in range(100))
    return next(
        (each, each.upper())
        for each in found
        if shards.shard_of(queue, each) != shards.shard_of(queue, each.upper())
    )


async def listed(door: Door) -> list[str]:
    """The ids of all sessions."""
    return await door.namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=50)


@pytest.mark.parametrize("count", [1, 4])
async def test_two_spellings_are_one_session_at_two_bridges(
    count: int, endpoint: Endpoint, broker: Broker
) -> None:
    """One lock, order and state, wherever they are asked for; lists show the oldest message's."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, QUEUE, session_shards=count) as first,
        open_door(endpoint, url, QUEUE, session_shards=count, with_sidecar=False) as second,
    ):
        for spelling in ("Order", "ORDER", "order"):
            await send(first, spelling, f"of {spelling}")
        assert await listed(second) == ["Order"]
        client = await SessionClient(second).accept("oRDER")
        assert client.receiver.session_id == "oRDER"
        for door in (first, second):
            with pytest.raises(SessionCannotBeLocked):
                await SessionClient(door).accept("Order")
            peeked = await door.namespace.peek(PATH, 0, 10, "order")
            assert bodies(peeked) == ["of Order", "of ORDER", "of order"]
        received = await client.receive(3)
        assert bodies(received) == ["of Order", "of ORDER", "of order"]
        await first.namespace.set_session_state(PATH, "ORDER", b"kept")
        assert await second.namespace.session_state(PATH, "order") == b"kept"
        until_ms = await second.namespace.renew_session_lock(PATH, "Order")
        assert client.receiver.locked_until_ms == until_ms
        await client.settle(received[0], Defer())
        for each in received[1:]:
            await client.settle(each, Complete())
        await client.close()
        assert await listed(first) == ["ORDER"], "as the state was set"
        again = await SessionClient(first).accept("order")
        (deferred,) = await first.namespace.receive_deferred(
            PATH, [received[0].sequence_number], ReceiveMode.PEEK_LOCK, "ORDER"
        )
        await again.settle(deferred, Complete())
        await first.namespace.set_session_state(PATH, "Order", None)
        assert await listed(second) == []


async def test_what_a_newer_version_has_made_is_not_made_over(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Neither on a client's word nor from a file; a bridge that cannot read it finds no entity."""
    url = broker.management_url
    form = {**definitions.to_json(QUEUE), "kind": "queue of a later version"}
    async with Management(endpoint, url) as management:
        name = definitions.parameter_name(endpoint.vhost, QUEUE.path)
        await management.put_global_parameter(name, form)
        async with open_door(endpoint, url) as door:
            with pytest.raises(EntityConflict, match="cannot read"):
                await door.namespace.administration.create(QUEUE)
            with pytest.raises(EntityConflict, match="cannot read"):
                await door.namespace.apply(model.Namespace(queues=(QUEUE,)))
            with pytest.raises(EntityNotFound):
                await SessionClient(door).accept("a")
            assert await management.global_parameter(name) == form
            await management.delete_global_parameter(name)
            await door.namespace.administration.create(QUEUE)


async def test_an_older_entity_with_one_shard_folds_at_once(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Of the states of two spellings the later counts, in memory and in RabbitMQ."""
    url = broker.management_url
    await make_older(endpoint, url, 1)
    async with open_door(endpoint, url, QUEUE) as door:
        assert not door.namespace.directory.receivable(PATH).folds_session_ids
        client = await SessionClient(door).accept("other")  # $sessions is there
        states = names.sessions_queue("orders")
        publish = confirming.publisher.publish_confirmed
        first_ms = now_ms()
        for at_ms, spelling, state in ((first_ms, "a", b"earlier"), (first_ms + 1, "A", b"later")):
            await publish("", states, state_properties(spelling, at_ms), state)
        await send(door, "a", "1")
        await send(door, "A", "2")
        held = await SessionClient(door).accept("a")
        assert bodies(await held.receive(2)) == ["1", "2"]

        async def is_later() -> bool:
            return await door.namespace.session_state(PATH, "a") == b"later"

        await until(is_later)
        assert not door.namespace.state.warnings
        await client.close()


async def test_an_older_entity_with_shards_is_named_until_it_is_made_anew(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sessions stay in the queues where they are, and nothing of theirs is lost."""
    monkeypatch.setattr(reconciler, "POLL_S", 0.2)
    url = broker.management_url
    older = await make_older(endpoint, url, 4)
    one, other = spelt_apart(older)
    async with open_door(endpoint, url, QUEUE) as door:
        await send(door, one, "1")
        await send(door, other, "2")
        for spelling, body in ((one, "1"), (other, "2")):
            client = await SessionClient(door).accept(spelling)
            (message,) = await client.receive()
            assert bodies([message]) == [body]
            assert bodies(await door.namespace.peek(PATH, 0, 9, spelling)) == [body]
            await client.settle(message, Defer())
            with pytest.raises(MessageNotFound):
                await door.namespace.receive_deferred(
                    PATH, [3 - message.sequence_number], ReceiveMode.PEEK_LOCK, spelling
                )
            await client.close()
        await until(lambda: any("'orders'" in each for each in door.namespace.state.warnings))
        administration = door.namespace.administration
        await administration.delete("orders")
        made = await administration.create(replace(QUEUE, incarnation=""))
        assert (made.folds_session_ids, made.session_shards) == (True, 4)
        await until(lambda: not door.namespace.state.warnings)
        await send(door, one, "1")
        await send(door, other, "2")
        client = await SessionClient(door).accept(one)
        assert bodies(await client.receive(2)) == ["1", "2"]
        await client.close()
