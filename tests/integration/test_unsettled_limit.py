"""A client that leaves too many messages unsettled is told so; no delivery of it is forgotten."""

from __future__ import annotations

from uuid import UUID

from bridge.broker.connection.endpoint import Endpoint
from bridge.machine.amqp10.faults import RESOURCE_LIMIT_EXCEEDED
from bridge.machine.amqp10.limits import Limits
from bridge.model import entity as model
from bridge.wire.amqp10.performatives import Accepted, Attach, Detach, Disposition, Transfer
from bridge.wire.amqp10.types import Array
from tests.fixtures.broker import Broker
from tests.integration.door import open_door
from tests.integration.gateway_door import peer, serve

QUEUE = model.Queue(name="orders", lock_duration_ms=300_000)
MAX = 3
LINK = 7


async def test_a_link_of_too_many_unsettled_deliveries_ends(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Until then the oldest is settled and answered; then others get what was not taken."""
    async with (
        open_door(endpoint, broker.management_url, QUEUE) as door,
        serve(door, limits=Limits(unsettled_max=MAX)) as served,
        peer(served) as client,
        peer(served) as other,
    ):
        await client.send_texts("orders", ["1", "2", "3", "4", "5", "6"])
        client.receive_from(LINK, "orders")
        await client.next(Attach, handle=LINK)
        client.credit(LINK, MAX)
        came = [(await client.next(Transfer, handle=LINK))[0] for _ in range(MAX)]
        client.send(Disposition(True, came[0].delivery_id, None, False, Accepted()))
        assert await client.outcome(came[0].delivery_id) == Accepted()
        client.credit(LINK, 3, count=MAX)
        await client.next(Transfer, handle=LINK)  # as many as before are unsettled
        ended = await client.next(Detach, handle=LINK)
        assert ended.error.condition == RESOURCE_LIMIT_EXCEEDED
        assert f"{MAX} unsettled deliveries" in ended.error.description
        other.receive_from(LINK, "orders")
        await other.next(Attach, handle=LINK)
        other.credit(LINK, 2)
        assert [await other.message(LINK) for _ in range(2)] == [("5", 0), ("6", 0)]
        token = UUID(bytes_le=came[1].delivery_tag)
        reply = await client.manage(
            "orders", "com.microsoft:renew-lock", {"lock-tokens": Array("uuid", (token,))}
        )

        assert reply.application_properties["statusCode"] == 200
