"""What clients did to one queue and saw of it, and the judgement over it.

Every message carries an identity that its sender stamped on it; the service's numbers are believed
only as far as the checks go. Pure: the events (`events.py`) are all there is.

    check(events) -> what is wrong, nothing when all holds:
        lost              accepted, not cancelled, and nowhere when all was drained
        doubled           one identity under two numbers
        number twice      one number for two identities
        gap               a number that nothing can have had
        torn batch        some of a batch there, some not
        early             delivered or enqueued before its time
        back in time      a later number with an earlier time of enqueueing
        after completion  delivered under a lock that began after the completion was answered,
                          and no kill can have undone that
        after cancel      delivered although its cancel was answered
        held twice        two locks at once, without a kill between them
        count falls       a later delivery with a smaller delivery count
        unasked           delivered, but nobody sent it
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.crash.events import (
    Accepted,
    Cancelled,
    Cancelling,
    DeadLettering,
    Delivered,
    Event,
    Killed,
    Numbered,
    Returned,
    Scheduled,
    Sent,
    Settled,
)

UNSURE_MS = 500
"""RabbitMQ confirms no acks: one that was answered so short a time before a bridge or RabbitMQ died
may be undone. The bridge that answered it knows better, if it lives."""

NUMBERED_AGAIN_MS = 1_000
"""What was numbered so short a time before a kill may be there a second time, under its number: who
numbered it did not have RabbitMQ's confirm yet (on a loaded machine, after 0.7 s)."""

# Where RabbitMQ took longer than that to confirm what was sent, both are as long as it took.


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that must not be."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True)
class _Story:
    """All that concerns one identity."""

    batch: tuple[str, ...] = ()
    may_double: bool = False
    is_accepted: bool = False
    due_ms: int | None = None
    takes_number: bool = False
    scheduled_number: int | None = None
    numbered_ms: int = 0
    cancelling: bool = False
    cancelled_ms: int | None = None
    deliveries: list[Delivered] = field(default_factory=list)
    is_dead_lettering: bool = False
    settled: list[Settled] = field(default_factory=list)
    returned_ms: list[int] = field(default_factory=list)
    changed_ms: list[int] = field(default_factory=list)


def check(events: Iterable[Event], *, first_number: int = 1, bridges: int = 1) -> list[Fault]:
    """Judge a whole history: after the last event nothing is left in queue or dead-letter queue.

    Args:
        first_number: the number that the queue's first message of this history must have.
        bridges: how many there were; each knows only what it has settled itself.
    """
    events = list(events)
    stories, kills = _stories(events)
    undone = _Undone(kills, _slowest_answer_ms(events, kills))
    faults: list[Fault] = []
    for identity, story in stories.items():
        faults += _check_story(identity, story, undone, is_alone=bridges == 1)
    faults += _check_batches(stories)
    faults += _check_numbers(stories, first_number)
    return faults


def came_back(events: Iterable[Event]) -> int:
    """Return how many messages were delivered again after their settlement had been answered."""
    stories, _ = _stories(events)
    return sum(
        any(
            delivery.number == settled.number
            and delivery.is_dead == settled.is_dead
            and delivery.locked_ms > settled.at_ms
            for settled in story.settled
            for delivery in story.deliveries
        )
        for story in stories.values()
    )


def _stories(events: Iterable[Event]) -> tuple[dict[str, _Story], Sequence[Killed]]:
    stories: dict[str, _Story] = defaultdict(_Story)
    kills: list[Killed] = []
    for event in events:
        match event:
            case Sent(ids):
                for identity in ids:
                    stories[identity].batch = ids
                    stories[identity].may_double = event.may_double
            case Accepted(ids):
                for identity in ids:
                    stories[identity].is_accepted = True
            case Scheduled(ids, due_ms):
                for identity in ids:
                    story = stories[identity]
                    story.batch, story.due_ms = ids, due_ms
                    story.takes_number = event.takes_number
            case Numbered(ids, numbers, at_ms):
                for identity, number in zip(ids, numbers, strict=True):
                    stories[identity].numbered_ms = at_ms
                    stories[identity].is_accepted = True
                    stories[identity].scheduled_number = number
            case Cancelling(ids):
                for identity in ids:
                    stories[identity].cancelling = True
            case Cancelled(ids, at_ms):
                for identity in ids:
                    stories[identity].cancelling = True
                    stories[identity].cancelled_ms = at_ms
            case Delivered():
                stories[event.id].deliveries.append(event)
            case DeadLettering(identity):
                stories[identity].is_dead_lettering = True
            case Settled():
                stories[event.id].settled.append(event)
            case Returned(identity, at_ms):
                stories[identity].returned_ms.append(at_ms)
                if event.is_changed:
                    stories[identity].changed_ms.append(at_ms)
            case Killed():
                kills.append(event)
    return dict(stories), sorted(kills, key=lambda kill: kill.at_ms)


def _slowest_answer_ms(events: Iterable[Event], kills: Sequence[Killed]) -> int:
    """Return how long the longest send took that was begun and answered without a kill.

    What is begun after a kill and before anything was answered again waited for the bridge.
    """
    sends: dict[tuple[str, ...], int] = {}
    answered: list[tuple[int, int]] = []
    for event in events:
        if isinstance(event, Sent):
            sends.setdefault(event.ids, event.at_ms)
        elif isinstance(event, Accepted) and event.ids in sends:
            answered.append((sends[event.ids], event.at_ms))
    slowest_ms = 0
    begins_ms = [0, *(kill.at_ms for kill in kills)]
    ends_ms = [*(kill.begun_ms or kill.at_ms for kill in kills), sys.maxsize]
    for begin_ms, end_ms in zip(begins_ms, ends_ms, strict=True):
        within = [each for each in answered if begin_ms <= each[0] and each[1] <= end_ms]
        back_ms = min((at_ms for _, at_ms in within), default=0) if begin_ms else 0
        took = [at_ms - begun_ms for begun_ms, at_ms in within if begun_ms >= back_ms]
        slowest_ms = max([slowest_ms, *took])
    return slowest_ms


class _Undone:
    """What the kills of a history may have undone.

    Args:
        kills: by time.
        slowest_ms: how long RabbitMQ's confirm took at the longest.
    """

    def __init__(self, kills: Sequence[Killed], slowest_ms: int) -> None:
        self.kills = kills
        self._unsure_ms = max(UNSURE_MS, slowest_ms)
        self._numbered_again_ms = max(NUMBERED_AGAIN_MS, slowest_ms)

    def has_forgotten(self, settled: Settled, delivery: Delivered) -> bool:
        """Whether a bridge ended between the two: it knew that the message was settled."""
        times_ms = [kill.at_ms for kill in self.kills if not kill.is_broker]
        return any(settled.at_ms <= at_ms <= delivery.locked_ms for at_ms in times_ms)

    def has_undone(self, settled: Settled, delivery: Delivered) -> bool:
        """Whether RabbitMQ or a bridge was killed right after the settlement."""
        return any(
            settled.at_ms <= kill.at_ms <= min(settled.at_ms + self._unsure_ms, delivery.locked_ms)
            for kill in self.kills
            if not kill.is_orderly
        )

    def has_copied(self, story: _Story, delivery: Delivered) -> bool:
        """Whether what was delivered may be one of two copies that a kill left of a message.

        One does when the message was numbered just before; one of a bridge also when it cuts an
        abandon with changes (publish, confirm, ack). A bridge drops the second copy while it holds
        the first, and when it knows that the first is completed; it must live that long. Each
        counts its own deliveries.
        """
        earlier = [
            kill for kill in self.kills if kill.at_ms <= delivery.locked_ms and not kill.is_orderly
        ]
        return any(
            changed_ms <= kill.at_ms <= changed_ms + self._unsure_ms
            for changed_ms in story.changed_ms
            for kill in earlier
        ) or any(
            delivery.enqueued_ms <= kill.at_ms <= delivery.enqueued_ms + self._numbered_again_ms
            for kill in earlier
        )


def _check_story(identity: str, story: _Story, undone: _Undone, *, is_alone: bool) -> list[Fault]:
    faults = []
    if not story.batch:
        faults.append(Fault("unasked", f"{identity} was delivered, but nobody sent it"))
    if story.is_accepted and not story.deliveries and not story.cancelling:
        faults.append(Fault("lost", f"{identity} was accepted and is nowhere"))
    numbers = sorted({delivery.number for delivery in story.deliveries})
    if len(numbers) > 1 and not story.may_double:
        faults.append(Fault("doubled", f"{identity} has the numbers {numbers}"))
    if story.cancelled_ms is not None and story.deliveries:
        faults.append(Fault("after cancel", f"{identity} was cancelled and is number {numbers}"))
    if story.due_ms is not None:
        for delivery in story.deliveries:
            begun_ms = min(delivery.enqueued_ms, delivery.locked_ms, delivery.at_ms)
            if begun_ms < story.due_ms:
                early_ms = story.due_ms - begun_ms
                faults.append(Fault("early", f"{identity} came {early_ms} ms before its time"))
    faults += _check_settlement(identity, story, undone, is_alone=is_alone)
    faults += _check_locks(identity, story, undone, is_alone=is_alone)
    return faults


def _check_settlement(
    identity: str, story: _Story, undone: _Undone, *, is_alone: bool
) -> list[Fault]:
    faults = []
    for settled in story.settled:
        for delivery in story.deliveries:
            if story.is_dead_lettering and delivery.is_dead != settled.is_dead:
                # Dead-lettering is publish, confirm, ack: a kill in between leaves it in both.
                continue
            if delivery.number != settled.number:
                continue
            may_come_again = undone.has_undone(settled, delivery) or undone.has_copied(
                story, delivery
            )
            if may_come_again and (not is_alone or undone.has_forgotten(settled, delivery)):
                continue
            if may_come_again and delivery.is_dead:
                # RabbitMQ itself made a dead letter of it, when its time was over.
                continue
            if delivery.locked_ms > settled.at_ms:
                later_ms = delivery.locked_ms - settled.at_ms
                faults.append(
                    Fault(
                        "after completion",
                        f"{identity} (number {delivery.number}) was delivered {later_ms} ms after "
                        f"its settlement was answered, delivery count {delivery.count}",
                    )
                )
    is_dead_lettered = any(settled.is_dead_lettered for settled in story.settled)
    if is_dead_lettered and not any(delivery.is_dead for delivery in story.deliveries):
        faults.append(Fault("lost", f"{identity} was dead-lettered and is not there"))
    return faults


def _check_locks(identity: str, story: _Story, undone: _Undone, *, is_alone: bool) -> list[Fault]:
    faults = []
    alive = sorted(
        (delivery for delivery in story.deliveries if not delivery.is_dead),
        key=lambda delivery: (delivery.number, delivery.locked_ms),
    )
    for earlier, later in pairwise(alive):
        if earlier.number != later.number:
            continue
        has_copy = undone.has_copied(story, later)
        if has_copy and not is_alone:
            continue  # each bridge may have one of them
        if later.count < earlier.count and not has_copy:
            text = f"{identity}: {earlier.count}, then {later.count}"
            faults.append(Fault("count falls", text))
        ends = [(at_ms, at_ms) for at_ms in story.returned_ms]
        ends += [(kill.begun_ms or kill.at_ms, kill.at_ms) for kill in undone.kills]
        is_ended = any(
            begun_ms <= later.locked_ms and earlier.locked_ms <= at_ms for begun_ms, at_ms in ends
        )
        if later.locked_ms < earlier.locked_until_ms and not is_ended:
            overlap_ms = earlier.locked_until_ms - later.locked_ms
            faults.append(Fault("held twice", f"{identity}: locks overlap by {overlap_ms} ms"))
    return faults


def _check_batches(stories: dict[str, _Story]) -> list[Fault]:
    faults = []
    for batch in {story.batch for story in stories.values() if len(story.batch) > 1}:
        there = [identity for identity in batch if stories[identity].deliveries]
        gone = [
            identity
            for identity in batch
            if not stories[identity].deliveries and not stories[identity].cancelling
        ]
        if there and gone:
            faults.append(Fault("torn batch", f"{there} are there, {gone} are not"))
    return faults


def _check_numbers(stories: dict[str, _Story], first_number: int) -> list[Fault]:
    faults = []
    owners: dict[int, str] = {}
    enqueued: dict[int, int] = {}
    unknown = 0
    for identity, story in stories.items():
        numbers = {delivery.number for delivery in story.deliveries}
        if story.scheduled_number is not None:
            numbers.add(story.scheduled_number)
        elif story.takes_number:
            unknown += 1
        for number in numbers:
            other = owners.setdefault(number, identity)
            if other != identity:
                faults.append(Fault("number twice", f"{number} is {other} and {identity}"))
        waited = story.due_ms is not None and story.numbered_ms < story.due_ms
        if waited and story.scheduled_number in {each.number for each in story.deliveries}:
            text = f"{identity} kept {story.scheduled_number} at its activation"
            faults.append(Fault("number twice", text))
        for delivery in story.deliveries:
            enqueued.setdefault(delivery.number, delivery.enqueued_ms)
    if owners:
        missing = sorted(set(range(first_number, max(owners) + 1)) - set(owners))
        if len(missing) > unknown:
            text = f"{missing[:20]} are missing, {unknown} could be unanswered schedules"
            faults.append(Fault("gap", text))
        below = sorted(number for number in owners if number < first_number)
        if below:
            faults.append(Fault("number twice", f"{below[:20]} had been given before"))
    latest_ms = 0
    for number in sorted(enqueued):
        if enqueued[number] < latest_ms:
            text = f"{number} was enqueued {latest_ms - enqueued[number]} ms before its forerunner"
            faults.append(Fault("back in time", text))
        latest_ms = max(latest_ms, enqueued[number])
    return faults
