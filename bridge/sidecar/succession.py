"""How a life comes into office: what the last sequencer knew, read from the journal's tail.

When the last sequencer was a life of this same process, and RabbitMQ failed under it, the process
knows more than the journal: what it had numbered and not seen confirmed. Then its memory counts,
and the journal only tells whether anybody else was the sequencer in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.broker.address import await_ends
from bridge.broker.connection import Connection
from bridge.broker.handover import Publish
from bridge.machine.replay import Replay
from bridge.machine.sequencer import Sequencer, is_snapshot, marker
from bridge.sidecar.flights import Flights
from bridge.sidecar.office import Flight, Office
from bridge.sidecar.tail import Tail, steps
from bridge.topology import names


async def read_tail(
    office: Office,
    connection: Connection,
    flights: Flights,
    *,
    life: bytes,
    boot: str,
) -> Replay:
    """Announce a life in the journal, and read what lies before.

    Args:
        office: the entity's.
        connection: where to read.
        flights: through which the life publishes.
        life: its identity.
        boot: which boot of RabbitMQ runs now.
    """
    queue = office.queue
    tail = Tail(connection, names.journal(queue.name))
    entry = Publish(*marker(queue, life, boot))
    office.attempts.add(life)
    over: set[str] = set()
    while True:
        await tail.mark(lambda: flights.move(entry, site="sequencer.journal"), life)
        replay = await _read(
            tail,
            lambda: Replay(
                is_partitioned=queue.enable_partitioning,
                readers=office.attempts,
                fingerprint=boot,
            ),
        )
        # What was published between this life's marker and the end of another's channel is behind
        # what was read.
        others = replay.addresses - over
        if not others:
            return replay
        await await_ends(connection, others)
        over |= others


async def _read(tail: Tail, begin: Callable[[], Replay]) -> Replay:
    for step in steps():
        replay = begin()
        start = tail.end - step
        first = await tail.read(start, replay.feed)
        if start <= 0 or first > start or replay.is_sufficient():
            return replay
    raise AssertionError("the steps never end")


def succeed(office: Office, replay: Replay) -> tuple[Sequencer, Sequence[Flight]]:
    """Return the sequencer that goes on, and what must be published again.

    Snapshots are not: whoever comes into office writes a new one.
    """
    if office.sequencer is None or not office.is_successor(replay.lives):
        office.returning.clear()
        return Sequencer(office.queue, office.tier, replay.result()), ()
    assert office.life is not None, "whose sequencer it is"
    left = office.flights.values()
    flights = [each for each in left if not is_snapshot(each.publications[0])]
    replay.go_on(office.life, [each for flight in flights for each in flight.publications])
    office.sequencer.take_over(replay.result())
    office.sequencer.update(office.queue, office.tier)
    return office.sequencer, flights
