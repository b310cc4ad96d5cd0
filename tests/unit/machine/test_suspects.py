"""Who is asked on a connection of its own, and after which pause."""

from __future__ import annotations

import pytest

from bridge.machine.suspects import PAUSE_MAX_S, Suspects, is_silence, named_in


def test_a_queue_that_failed_is_silent_since_the_first_failure_until_it_answers() -> None:
    """Its last error is told with it."""
    suspects = Suspects()
    suspects.failed("orders", "541 INTERNAL_ERROR", 1_000)
    suspects.failed("orders", "541 noproc", 2_000)
    (silent,) = suspects.silent
    assert (silent.since_ms, silent.error) == (1_000, "541 noproc")
    assert (
        silent.sentence
        == "RabbitMQ gives no answer for 'orders' since 1970-01-01T00:00:01Z: 541 noproc."
    )

    suspects.answered("orders")
    assert suspects.silent == []
    assert "orders" in suspects  # it stays where it is until it has nothing under way

    suspects.failed("orders", "541", 5_000)
    assert [each.since_ms for each in suspects.silent] == [5_000]

    suspects.cleared("orders")
    assert "orders" not in suspects


def test_the_pause_doubles_with_every_failure_up_to_the_longest() -> None:
    """A target that has not failed is asked at once; an answer does not shorten the pause."""
    suspects = Suspects()
    assert suspects.pause_s("orders") == 0
    pauses = []
    for _ in range(6):
        suspects.failed("orders", "", 0)
        pauses.append(suspects.pause_s("orders"))
    assert pauses == [1, 2, 4, 8, PAUSE_MAX_S, PAUSE_MAX_S]
    suspects.answered("orders")
    suspects.failed("orders", "", 0)
    assert suspects.pause_s("orders") == PAUSE_MAX_S
    for _ in range(5_000):
        suspects.failed("orders", "", 0)
    assert suspects.pause_s("orders") == PAUSE_MAX_S


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("INTERNAL_ERROR", {"orders", "bills"}),
        ("INTERNAL_ERROR - failed consuming from quorum queue 'bills' in vhost '/'", {"bills"}),
        ("Cannot get a message from queue 'queue 'orders' in vhost '/'': noproc", {"orders"}),
        ("failed consuming from quorum queue 'bills/$inbox' in vhost '/': noproc", {"bills"}),
        ("failed consuming from quorum queue 'others' in vhost '/'", {"orders", "bills"}),
    ],
)
def test_whom_rabbitmq_names_is_blamed_and_otherwise_all(text: str, blamed: set[str]) -> None:
    """Before 4.3 RabbitMQ names the queue of a get only, since then that of a consume too."""
    assert named_in(text, {"orders", "bills"}) == blamed


def test_a_channel_that_closes_for_a_missing_process_means_silence() -> None:
    """A queue that is not there at all is another thing."""
    missing = "PRECONDITION_FAILED - queue 'a' in vhost '/' does not have a replica on the local"
    assert is_silence(missing + " node")
    assert is_silence("NOT_FOUND - home node 'a@b' of durable queue 'q' is down or inaccessible")
    assert not is_silence("NOT_FOUND - no queue 'q' in vhost '/'")
