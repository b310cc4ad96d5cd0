"""The stream of what was accepted: read by whoever numbers next, whatever stands in it."""

from __future__ import annotations

from collections.abc import Callable

from bridge.topology import parts
from tests.fixtures.sidecar import Rig, numbers


def test_what_a_stranger_writes_into_the_history_stops_nobody(rig: Callable[..., Rig]) -> None:
    """It is passed over; duplicates of natives are dropped, and counted, after a kill as well."""
    queue = rig(requires_duplicate_detection=True)
    stream = parts.history(queue.queue.name)
    history = stream.name
    queue.channel.queue_declare(history, durable=True, arguments=stream.arguments)
    for kind in ("accepted", "nonsense"):
        queue.publish_to(history, b"\x02no sections", headers={"x-busbridge-entry": kind})
    first = queue.start()
    for body, message_id in ((b"one", "a"), (b"two", "a"), (b"three", "b")):
        queue.publish(body, message_id=message_id)
    before = queue.take(2)
    assert [each.body for each in before] == [b"one", b"three"]
    first.kill()

    second = queue.start()
    queue.publish(b"four", message_id="a")
    queue.publish(b"five", message_id="c")
    (only,) = queue.take(1, before_kill=before)
    assert (only.body, numbers([only])) == (b"five", [3])
    (meters,) = second.stop().values()
    assert meters["duplicates"] == 1
