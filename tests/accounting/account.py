"""The account of a place, a queue or a subscription: what was sent there, what its clients did, and
what was left in the end.

    faults_of(account) -> what is wrong, nothing when all holds:
        lost              sent, and neither settled nor left
        doubled           left more than once
        unasked           delivered or left, but nobody sent it
        number twice      one identity under two numbers, or one number for two
        came back         delivered or left after its completion was answered
        not as asked      dead-lettered or deferred, by an answered request, and not left there
        count             falls, does not rise by one after a failure, or rises without one
        unseen            dead-lettered for its deliveries, more than its clients ever saw
        innocent          a settlement refused though its lock had time left
        out of order      a session's messages first delivered in another order than their numbers

Pure: the lines that the clients printed, and what a drain found, are all there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

MARGIN_MS = 1_000
"""A settlement that is refused so short a time before its lock's end may have been late."""

_COUNTED = ("abandon", "throw", "lapse")
_REFUSED = "refused"

Line = Mapping[str, Any]
"""What a client printed: `what` (got, settling, settled, refused), `id`, `number`, `session` (""
for none), `at`; of got: `count` (failed deliveries before), `until` (its lock's end, or null); of
the others: `how`."""


@dataclass(frozen=True, slots=True)
class Left:
    """A message that was found in the end.

    Attributes:
        state: active, dead, deferred, or shown: by a peek, when all of these were taken.
        reason: why it was dead-lettered.
    """

    id: str
    state: str
    number: int
    reason: str = ""


@dataclass(slots=True)
class Account:
    """All that is known of a place.

    Attributes:
        place: its path.
        sent: the identities that must have come there.
        lines: what its clients printed, in any order.
        left: what a drain found.
        max_delivery_count: its MaxDeliveryCount.
        has_cuts: connections were cut: deliveries may not have been seen, answers be missing.
        holds_order: whether the first deliveries of each session must be in order.
    """

    place: str
    max_delivery_count: int
    sent: Collection[str] = ()
    lines: Sequence[Line] = ()
    left: Sequence[Left] = ()
    has_cuts: bool = False
    holds_order: bool = True


@dataclass(slots=True)
class _Story:
    lines: list[Line] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def of(self, what: str, *how: str) -> list[Line]:
        return [
            each
            for each in self.lines
            if each["what"] == what and (not how or each.get("how") in how)
        ]


def faults_of(account: Account) -> list[str]:
    """Return every fault of a place, each with the story of its message."""
    stories: dict[str, _Story] = defaultdict(_Story)
    for identity in account.sent:
        stories[identity] = _Story()
    # Of one millisecond: a request before its answer before the next delivery.
    for line in sorted(account.lines, key=lambda each: each["at"]):
        stories[line["id"]].lines.append(line)
    for each in account.left:
        stories[each.id].left.append(each)
    sent = set(account.sent)
    faults = []
    for identity, story in stories.items():
        found = list(_judge(account, story)) if identity in sent else ["unasked"]
        faults += [_told(account, identity, story, fault) for fault in found]
    faults += [f"{account.place}: {fault}" for fault in _judge_numbers(stories)]
    if account.holds_order:
        faults += [f"{account.place}: {fault}" for fault in _judge_order(account.lines)]
    return faults


def _told(account: Account, identity: str, story: _Story, fault: str) -> str:
    events = "\n".join(f"    {dict(each)}" for each in story.lines)
    left = "\n".join(f"    left: {each}" for each in story.left)
    return f"{account.place}: {identity}: {fault}\n{events}\n{left}"


def _judge(account: Account, story: _Story) -> Iterable[str]:
    yield from _judge_end(account, story)
    yield from _judge_counts(account, story)
    for refused in story.of(_REFUSED):
        until_ms = _held_until(story, refused)
        if not account.has_cuts and refused["at"] < until_ms - MARGIN_MS:
            yield f"innocent: {refused['how']} refused {until_ms - refused['at']} ms before its end"


def _held_until(story: _Story, settlement: Line) -> int:
    """Return the end of the lock that a settlement was made under."""
    held = [each for each in story.of("got") if each["at"] <= settlement["at"]]
    return int(held[-1].get("until") or 0) if held else 0


def _judge_end(account: Account, story: _Story) -> Iterable[str]:
    completed = story.of("settled", "complete", "delete")
    if completed:
        later = [each for each in story.of("got") if each["at"] > completed[0]["at"]]
        if later or story.left:
            yield f"came back, after {completed[0]['how']}"
        return
    if len(story.left) > 1:
        yield "doubled"
    if not story.left:
        if not _may_be_completed(story, has_cuts=account.has_cuts):
            yield "lost"
        return
    left = story.left[0]
    if story.of("settled", "dead") and left.state != "dead":
        yield f"not as asked: dead-lettered, but {left.state}"
    if left.state == "deferred" and not story.of("settling", "defer"):
        yield "not as asked: deferred by nobody"
    if story.of("settled", "defer") and not _is_after_defer(story) and left.state != "deferred":
        yield f"not as asked: deferred, but {left.state}"
    if left.state == "dead" and left.reason == "MaxDeliveryCountExceeded":
        seen = len(story.of("got"))
        least = 1 if account.has_cuts else account.max_delivery_count
        if seen < least:
            yield f"unseen: {seen} deliveries"
    elif left.state == "dead" and not story.of("settling", "dead"):
        yield f"not as asked: dead-lettered by nobody ({left.reason})"


def _may_be_completed(story: _Story, *, has_cuts: bool) -> bool:
    """Whether a completion was asked for and never answered; a cut is reported as a refusal."""
    asked = len(story.of("settling", "complete"))
    return asked > (0 if has_cuts else len(story.of(_REFUSED, "complete")))


def _is_after_defer(story: _Story) -> bool:
    """Whether something happened to a message after it was deferred."""
    at = story.of("settled", "defer")[-1]["at"]
    return any(each["at"] > at or each.get("how") == "complete" for each in story.of("settling"))


def _judge_counts(account: Account, story: _Story) -> Iterable[str]:
    """Compare each two deliveries in a row; what a deferral counts is judged elsewhere."""
    for earlier, later in pairwise(story.of("got")):
        between = [
            each
            for each in story.of("settling")
            if earlier["at"] <= each["at"] <= later["at"] and each["number"] == earlier["number"]
        ]
        rise = later["count"] - earlier["count"]
        if rise < 0:
            yield f"count: {earlier['count']}, then {later['count']}"
        if account.has_cuts or any(each["how"] == "defer" for each in between):
            continue
        has_failed = any(each["how"] in _COUNTED for each in between)
        lapsed = not has_failed and later["at"] > (earlier.get("until") or 0) - MARGIN_MS
        if has_failed and rise != 1:
            yield f"count: {earlier['count']}, failed, then {later['count']}"
        elif not has_failed and not lapsed and rise:
            yield f"count: {earlier['count']}, not failed, then {later['count']}"


def _judge_numbers(stories: Mapping[str, _Story]) -> Iterable[str]:
    owners: dict[int, str] = {}
    for identity, story in stories.items():
        numbers = {each["number"] for each in story.of("got")}
        numbers |= {each.number for each in story.left if each.state in ("active", "deferred")}
        if len(numbers) > 1:
            yield f"number twice: {identity} is {sorted(numbers)}"
        for number in numbers:
            other = owners.setdefault(number, identity)
            if other != identity:
                yield f"number twice: {number} is {other} and {identity}"


def _judge_order(lines: Sequence[Line]) -> Iterable[str]:
    first: dict[str, dict[int, int]] = defaultdict(dict)
    got = (each for each in lines if each["what"] == "got" and each["session"])
    for each in got:
        seen = first[each["session"]]
        seen[each["number"]] = min(each["at"], seen.get(each["number"], each["at"]))
    for session, seen in first.items():
        for (lower, at), (higher, later) in pairwise(sorted(seen.items())):
            if later < at:
                yield f"out of order: in session {session} {higher} came before {lower}"
