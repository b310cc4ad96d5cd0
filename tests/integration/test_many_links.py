"""Thousands of a client's links at an engine with RabbitMQ: no turn of the loop is long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.cli.garbage import in_steps
from bridge.model import entity as model
from bridge.wire.amqp10.performatives import Attach, Source, Target
from tests.conformance.probe import check, probing, undisturbed
from tests.conformance.test_crowds import HANDLES, MAKE, OF_LINKS, TURN_S_MAX, crowd
from tests.fixtures.broker import Broker
from tests.integration.door import open_door
from tests.integration.gateway_door import FILTER, serve
from tests.unit.machine.amqp10.peer import frame

QUEUES = (model.Queue(name="q"), model.Queue(name="s", requires_session=True))


def accepting(handle: int, session_id: str | None) -> bytes:
    """Return an attach for a session, or (`None`) for the next one."""
    source = Source("s", filter={FILTER: session_id})
    return frame(
        0, Attach(name=f"x{handle}", handle=handle, role=True, source=source, target=Target("x"))
    )


KINDS: dict[str, Callable[[], bytes]] = {
    "receivers with credit": MAKE["receivers with credit"],
    "receivers of the next session": lambda: b"".join(accepting(each, None) for each in HANDLES),
    "receivers of named sessions": lambda: b"".join(
        accepting(each, f"s{each}") for each in HANDLES
    ),
}


OVER = ("detached, the last first", "ended", "lost")


@pytest.mark.long
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("kind", KINDS)
@undisturbed
async def test_many_receivers_hold_up_nobody(
    endpoint: Endpoint, broker: Broker, kind: str, over: str
) -> None:
    """Neither while they are attached nor when they end together, in whatever way."""
    make = KINDS[kind]()
    with in_steps():
        async with (
            open_door(endpoint, broker.management_url, *QUEUES) as door,
            serve(door) as served,
        ):
            with probing() as probe:
                making_s, ending_s = await crowd(
                    served.gateway, served.port, make, OF_LINKS[over](), probe
                )
    check(making_s, TURN_S_MAX)
    check(ending_s, TURN_S_MAX)
