"""What a client settles at one bridge, of a session that another bridge holds."""

from __future__ import annotations

from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Modified,
    Rejected,
    Transfer,
)
from tests.fixtures.broker import Broker
from tests.integration.door import open_door
from tests.integration.gateway_door import peer, serve
from tests.integration.session_door import SessionClient
from tests.unit.machine.amqp10.peer import frame

QUEUE = model.Queue(name="orders", lock_duration_ms=300_000, requires_session=True)
LINK, DEAD_LETTERS = 7, 8


async def test_settlements_come_before_the_end_of_their_link(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Dead-letter, abandon and complete, then detach, in one write: all three are carried out."""
    url = broker.management_url
    async with open_door(endpoint, url, QUEUE, session_shards=1) as owner:
        await SessionClient(owner).accept("another")
        async with (
            open_door(endpoint, url, QUEUE, session_shards=1, with_sidecar=False) as door,
            serve(door) as served,
            peer(served) as client,
        ):
            await client.send_texts("orders", ["1", "2", "3"], "s")
            client.receive_from(LINK, "orders", "s")
            await client.next(Attach, handle=LINK)
            client.credit(LINK, 3)
            first, second, third = [
                (await client.next(Transfer, handle=LINK))[0].delivery_id for _ in range(3)
            ]
            settled = (
                Disposition(True, first, None, True, Rejected()),
                Disposition(True, second, None, True, Modified(delivery_failed=True)),
                Disposition(True, third, None, True, Accepted()),
            )
            client.write(b"".join(frame(0, each) for each in (*settled, Detach(LINK, True, None))))
            await client.next(Detach, handle=LINK)
            client.receive_from(DEAD_LETTERS, "orders/$DeadLetterQueue")
            await client.next(Attach, handle=DEAD_LETTERS)
            client.credit(DEAD_LETTERS, 1)
            assert await client.message(DEAD_LETTERS) == ("1", 0)
            client.receive_from(LINK, "orders", "s")
            await client.next(Attach, handle=LINK)
            client.credit(LINK, 1)
            assert await client.message(LINK) == ("2", 1)
            assert owner.namespace.counters.completed == 2
