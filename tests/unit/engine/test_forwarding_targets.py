"""What the targets of forwarded messages take; forwarders and transactions have one rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.engine.forwarding.targets import CannotForward, ForwardingTargets, check_message
from bridge.model import entity as model
from bridge.model.entity import EntityStatus, Tier
from bridge.model.errors import QuotaExceeded, ServerBusy

TARGET = model.Queue(name="bills")


class Entities:
    """The entities as they are known, and as RabbitMQ has them; notes which were read."""

    def __init__(self, known: model.Entity | None, stored: model.Entity | None) -> None:
        self.known, self.stored = known, stored
        self.reads = 0

    async def find(self, path: str, is_read: bool) -> model.Entity | None:
        self.reads += is_read
        return self.stored if is_read else self.known


def _targets(entity: model.Entity | None, full: str = "") -> ForwardingTargets:
    return ForwardingTargets(Entities(entity, entity).find, lambda target: full)


async def test_a_target_that_takes_messages_is_returned() -> None:
    """A queue and a topic are."""
    for each in (TARGET, model.Topic(name="events")):
        assert await _targets(each).open(each.path) == each


@pytest.mark.parametrize("status", EntityStatus)
async def test_a_message_waits_for_a_held_target_whatever_its_status(status: EntityStatus) -> None:
    """Its migration may say that it is disabled, and does not give its messages away."""
    with pytest.raises(ServerBusy):
        await _targets(replace(TARGET, held="run", status=status)).open("bills")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (None, "MessagingEntityNotFoundException"),
        (model.Subscription(name="audit", topic="events"), "MessagingEntityNotFoundException"),
        (replace(TARGET, status=EntityStatus.DISABLED), "MessagingEntityDisabledException"),
        (replace(TARGET, status=EntityStatus.SEND_DISABLED), "MessagingEntityDisabledException"),
    ],
)
async def test_what_takes_no_messages_is_no_target(
    target: model.Entity | None, reason: str
) -> None:
    """A message of a dead-letter queue waits for it, as that is not the message's fault."""
    with pytest.raises(CannotForward) as caught:
        await _targets(target, full="it is full").open("bills")
    assert (caught.value.reason, caught.value.is_for_good) == (reason, False)


async def test_a_full_target_is_told_from_others() -> None:
    """One forwarder makes dead letters then, and another one waits."""
    with pytest.raises(QuotaExceeded, match="it is full"):
        await _targets(TARGET, full="it is full").open("bills")


async def test_a_target_is_read_when_it_is_not_known_or_in_doubt() -> None:
    """Once for each doubt: it may have been made, or deleted, by another bridge."""
    entities = Entities(None, TARGET)
    targets = ForwardingTargets(entities.find, lambda target: "")
    assert await targets.open("bills") == TARGET
    entities.known = TARGET
    await targets.open("bills")
    assert entities.reads == 1
    targets.doubt("bills")
    for _ in range(2):
        await targets.open("bills")
    assert entities.reads == 2


async def test_without_a_name_nothing_is_looked_for() -> None:
    """A transfer that names no target goes nowhere."""
    entities = Entities(TARGET, TARGET)
    with pytest.raises(CannotForward):
        await ForwardingTargets(entities.find, lambda target: "").open("")
    assert entities.reads == 0


def test_a_message_that_its_target_never_takes_is_refused_for_good() -> None:
    """One that is too large, and one without the session that its target needs."""
    with_sessions = replace(TARGET, requires_session=True)
    check_message(TARGET, Tier.STANDARD, 256 << 10, None)
    check_message(with_sessions, Tier.STANDARD, 1, "a")
    for target, size_bytes, reason in (
        (TARGET, (256 << 10) + 1, "MessageSizeExceededException"),
        (with_sessions, 1, "Session ID is null."),
    ):
        with pytest.raises(CannotForward) as caught:
            check_message(target, Tier.STANDARD, size_bytes, None)
        assert (caught.value.reason, caught.value.is_for_good) == (reason, True)
