"""The history checker finds every planted fault, and nothing in a history without one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.crash.history import check

LOCK_MS = 5000

History = list[Event]


def delivered(identity: str, number: int, at_ms: int, *, count: int = 0) -> Delivered:
    """A delivery whose message was enqueued just before."""
    return Delivered(identity, number, at_ms - 10, count, at_ms, at_ms + LOCK_MS, at_ms + 1)


def good_history(seed: int) -> History:
    """A history as it should be: sends, batches, schedules, cancels, kills, dead letters."""
    chance = random.Random(seed)
    events: History = []
    now_ms, number = 1000, 0
    for i in range(chance.randint(3, 40)):
        now_ms += chance.randint(1, 50)
        ids = tuple(f"{i}.{j}" for j in range(chance.choice([1, 1, 1, 3])))
        kind = chance.choice(
            ["send", "send", "unanswered", "dropped", "schedule", "cancel", "kill"]
        )
        if kind == "kill":
            events.append(Killed(now_ms))
            continue
        if kind in ("schedule", "cancel"):
            events.append(Scheduled(ids, now_ms + 500, now_ms))
            waiting = tuple(number + 1 + j for j in range(len(ids)))
            number += len(ids)
            events.append(Numbered(ids, waiting, now_ms + 2))
            now_ms += 600
            if kind == "cancel":
                events += [Cancelling(ids, now_ms - 300), Cancelled(ids, now_ms - 299)]
                continue
        else:
            events.append(Sent(ids, now_ms))
            if kind == "dropped":
                continue
            if kind == "send":
                events.append(Accepted(ids, now_ms + 2))
        for identity in ids:
            number += 1
            now_ms += 20
            events.append(delivered(identity, number, now_ms))
            fate = chance.choice(["complete", "lock ends", "abandon", "dead-letter", "kill"])
            if fate == "lock ends":
                now_ms += LOCK_MS + 1
                events.append(delivered(identity, number, now_ms, count=1))
            if fate in ("abandon", "kill"):
                end = Killed(now_ms + 2) if fate == "kill" else Returned(identity, now_ms + 2)
                now_ms += 20
                events += [end, delivered(identity, number, now_ms, count=1)]
            if fate == "dead-letter":
                events.append(DeadLettering(identity, now_ms + 2))
                events.append(Settled(identity, number, now_ms + 3, is_dead_lettered=True))
                now_ms += 20
                events.append(replace(delivered(identity, number, now_ms), is_dead=True))
                events.append(Settled(identity, number, now_ms + 3, is_dead=True))
            else:
                events.append(Settled(identity, number, now_ms + 3))
    return events


def renumbered_times(events: History) -> History:
    """Give each number the time of its first delivery, as the service would."""
    first: dict[int, int] = {}
    for event in events:
        if isinstance(event, Delivered):
            first.setdefault(event.number, event.enqueued_ms)
    return [
        replace(event, enqueued_ms=first[event.number]) if isinstance(event, Delivered) else event
        for event in events
    ]


@given(seed=st.integers(0, 10_000))
def test_nothing_is_found_where_nothing_is_wrong(seed: int) -> None:
    """A history in which all holds has no fault, in whatever order the clients noted it."""
    events = renumbered_times(good_history(seed))
    assert check(events) == []
    random.Random(seed).shuffle(events)
    assert check(events) == []


BASE: History = [
    Sent(("a",), 1000),
    Accepted(("a",), 1002),
    delivered("a", 1, 1020),
    Settled("a", 1, 1030),
    Sent(("b", "c"), 1100),
    Accepted(("b", "c"), 1102),
    delivered("b", 2, 1120),
    Settled("b", 2, 1125),
    delivered("c", 3, 1130),
    Settled("c", 3, 1135),
    Scheduled(("d",), 2000, 1200),
    Numbered(("d",), (4,), 1202),
    delivered("d", 5, 2010),
    Settled("d", 5, 2015),
    Scheduled(("e",), 2000, 1300),
    Numbered(("e",), (6,), 1302),
    Cancelling(("e",), 1400),
    Cancelled(("e",), 1402),
]


def without(*wrong: Event) -> History:
    """The base without some events."""
    return [event for event in BASE if event not in wrong]


def of(identity: str, kind: type[Event]) -> Event:
    """The base's event of a kind for an identity."""
    for event in BASE:
        ids = getattr(event, "ids", (getattr(event, "id", None),))
        if isinstance(event, kind) and identity in ids:
            return event
    raise LookupError(identity)


def changed(identity: str, **fields: object) -> History:
    """The base with a delivery changed."""
    wrong = of(identity, Delivered)
    return [replace(event, **fields) if event is wrong else event for event in BASE]


PLANTED: dict[str, tuple[str, Callable[[], History]]] = {
    "a message is lost": ("lost", lambda: without(of("a", Delivered), of("a", Settled))),
    "a scheduled message is lost": ("lost", lambda: without(of("d", Delivered), of("d", Settled))),
    "a dead letter is lost": (
        "lost",
        lambda: [
            *without(of("a", Settled)),
            DeadLettering("a", 1025),
            Settled("a", 1, 1030, is_dead_lettered=True),
        ],
    ),
    "a message is stored twice": (
        "doubled",
        lambda: [*BASE, delivered("a", 7, 3000), Settled("a", 7, 3010)],
    ),
    "a number names two": ("number twice", lambda: changed("c", number=2)),
    "a number is given again": ("number twice", lambda: changed("d", number=6)),
    "a scheduled number is kept": ("number twice", lambda: changed("d", number=4)),
    "a number is left out": ("gap", lambda: changed("d", number=7)),
    "the first number is not the first": ("gap", lambda: changed("a", number=7)),
    "half a batch": ("torn batch", lambda: without(of("c", Delivered), of("c", Settled))),
    "delivered early": ("early", lambda: changed("d", locked_ms=1999)),
    "enqueued early": ("early", lambda: changed("d", enqueued_ms=1999)),
    "time goes back": ("back in time", lambda: changed("c", enqueued_ms=1005)),
    "delivered after completion": (
        "after completion",
        lambda: [*BASE, delivered("a", 1, 1031, count=1)],
    ),
    "delivered after completion, the bridge ended in order": (
        "after completion",
        lambda: [*BASE, Killed(1031, is_orderly=True), delivered("a", 1, 1040, count=1)],
    ),
    "delivered after completion, the bridge was killed, but later": (
        "after completion",
        lambda: [*BASE, Killed(1600), delivered("a", 1, 1640, count=1)],
    ),
    "delivered after completion, only RabbitMQ died": (
        "after completion",
        lambda: [*BASE, Killed(1031, is_broker=True), delivered("a", 1, 1040, count=1)],
    ),
    "delivered after completion, both died, but later": (
        "after completion",
        lambda: [
            *BASE,
            Killed(2000, is_broker=True),
            Killed(2001),
            delivered("a", 1, 2040, count=1),
        ],
    ),
    "delivered after completion, both died, but in the other order": (
        "after completion",
        lambda: [
            *BASE,
            Killed(1029),
            Killed(1031, is_broker=True),
            delivered("a", 1, 2040, count=1),
        ],
    ),
    "a copy after an uncut change": (
        "after completion",
        lambda: [
            *BASE,
            Returned("a", 1010, is_changed=True),
            Killed(1600),
            delivered("a", 1, 1700, count=1),
        ],
    ),
    "a copy after an abandon without changes": (
        "after completion",
        lambda: [
            *BASE,
            Returned("a", 1022),
            Killed(1025),
            Killed(1600),
            delivered("a", 1, 1700, count=1),
        ],
    ),
    "a copy that the bridge should have known": (
        "after completion",
        lambda: [
            *BASE,
            Returned("a", 1022, is_changed=True),
            Killed(1025),
            delivered("a", 1, 1700, count=1),
        ],
    ),
    "a copy after a change that was cut later": (
        "after completion",
        lambda: [
            *BASE,
            Returned("a", 1022, is_changed=True),
            Killed(1600),
            delivered("a", 1, 1700, count=1),
        ],
    ),
    "delivered after dead-lettering": (
        "after completion",
        lambda: [
            *BASE,
            Sent(("f",), 3000),
            delivered("f", 7, 3010),
            DeadLettering("f", 3015),
            Settled("f", 7, 3020, is_dead_lettered=True),
            replace(delivered("f", 7, 3030), is_dead=True),
            delivered("f", 7, 3040, count=1),
        ],
    ),
    "a dead letter comes back": (
        "after completion",
        lambda: [
            *BASE,
            Sent(("f",), 3000),
            delivered("f", 7, 3010),
            DeadLettering("f", 3015),
            replace(delivered("f", 7, 3030), is_dead=True),
            Settled("f", 7, 3040, is_dead=True),
            replace(delivered("f", 7, 3050), is_dead=True),
        ],
    ),
    "delivered after its cancel": ("after cancel", lambda: [*BASE, delivered("e", 7, 2010)]),
    "held by two": ("held twice", lambda: [*BASE, delivered("a", 1, 1025, count=1)]),
    "the count falls": (
        "count falls",
        lambda: [
            *without(of("a", Settled)),
            Returned("a", 1025),
            delivered("a", 1, 1040, count=2),
            Returned("a", 1045),
            delivered("a", 1, 1060, count=1),
        ],
    ),
    "out of nowhere": ("unasked", lambda: [*BASE, delivered("z", 7, 3000)]),
}


def test_the_base_holds() -> None:
    """The history that faults are planted in has none of its own."""
    assert check(BASE) == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault(name: str) -> None:
    """The planted fault is found."""
    kind, history = PLANTED[name]
    assert kind in {fault.kind for fault in check(history())}


def undone_late(*sends: Event) -> History:
    """A completion 1,500 ms before a kill that comes again, beside other sends."""
    return [
        *(Sent(("x",), 3000), Accepted(("x",), 3005), delivered("x", 1, 3010)),
        *(*sends, Settled("x", 1, 3500), Killed(5000)),
        *(delivered("x", 1, 6000, count=1), Settled("x", 1, 6010)),
    ]


@pytest.mark.parametrize(
    ("sent_ms", "answered_ms", "is_fault"),
    [
        pytest.param(3100, 3200, True, id="RabbitMQ is fast"),
        pytest.param(3100, 4700, False, id="a confirm took longer than that"),
        pytest.param(4800, 8000, True, id="a send waited over the kill"),
        pytest.param(5100, 8000, True, id="a send waited for the bridge"),
    ],
)
def test_a_kill_undoes_what_is_no_older_than_the_slowest_confirm(
    sent_ms: int, answered_ms: int, *, is_fault: bool
) -> None:
    """On a machine so busy that confirms take seconds, acks take them too."""
    history = undone_late(
        Sent(("y",), sent_ms),
        Accepted(("y",), answered_ms),
        *(delivered("y", 2, 8010), Settled("y", 2, 8020)),
    )
    assert {fault.kind for fault in check(history)} == ({"after completion"} if is_fault else set())


def test_a_number_of_an_earlier_history() -> None:
    """A number that was given before this history began is found."""
    assert "number twice" in {fault.kind for fault in check(BASE, first_number=2)}


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Sent(("x",), 1)], id="an unanswered send that is not there"),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Returned("x", 60, is_changed=True),
                Killed(70),
                delivered("x", 1, 80, count=1),
                Settled("x", 1, 90),
                Killed(100),
                delivered("x", 1, 110, count=1),
            ],
            id="a copy of a change that one kill cut and another one hid",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Returned("x", 60, is_changed=True),
                Killed(70),
                delivered("x", 1, 80, count=3),
                Settled("x", 1, 90),
                Killed(100),
                delivered("x", 1, 110, count=2),
            ],
            id="such a copy, which was delivered less often",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Settled("x", 1, 80),
                Killed(90),
                delivered("x", 1, 300, count=1),
            ],
            id="a completion of a bridge's last instant",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Settled("x", 1, 80),
                Killed(90, is_broker=True),
                Killed(200),
                delivered("x", 1, 300, count=1),
            ],
            id="a completion that both forgot",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Settled("x", 1, 80),
                Killed(90, is_broker=True),
                replace(delivered("x", 1, 300), is_dead=True),
            ],
            id="a completion that RabbitMQ forgot, of a message that expired then",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                Killed(60, is_broker=True),
                replace(delivered("x", 1, 700), enqueued_ms=50),
                Settled("x", 1, 800),
                Killed(900),
                replace(delivered("x", 1, 1000), enqueued_ms=50),
            ],
            id="a copy that RabbitMQ's death made and a bridge's hid",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                replace(delivered("x", 1, 70), enqueued_ms=50),
                Settled("x", 1, 80),
                Killed(700),
                replace(delivered("x", 1, 900), enqueued_ms=50),
            ],
            id="a copy of what was completed before the kill that made and hid it",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                Killed(60),
                replace(delivered("x", 1, 700, count=2), enqueued_ms=50),
                Returned("x", 710),
                replace(delivered("x", 1, 720, count=1), enqueued_ms=50),
            ],
            id="a copy that was delivered less often, while the other one was not held",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                Killed(60),
                replace(delivered("x", 1, 700), enqueued_ms=50),
                Settled("x", 1, 800),
                replace(delivered("x", 1, 9000), enqueued_ms=50, is_dead=True),
            ],
            id="a copy that expired after the other one was completed",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                delivered("x", 1, 70, count=1),
                Settled("x", 1, 80),
                Killed(90, begun_ms=60),
            ],
            id="a lock that another bridge gives before the dead one is found dead",
        ),
        pytest.param([Sent(("x",), 1), delivered("x", 1, 50)], id="an unanswered send that is"),
        pytest.param(
            [Sent(("x",), 1, may_double=True), delivered("x", 1, 50), delivered("x", 2, 60)],
            id="a native message that a kill has doubled",
        ),
        pytest.param([Sent(("x", "y"), 1)], id="an unanswered batch that is not there"),
        pytest.param(
            [Scheduled(("x",), 9, 1), Sent(("y",), 2), delivered("y", 2, 50)],
            id="a number that an unanswered schedule took",
        ),
        pytest.param(
            [
                Scheduled(("x",), 9, 1),
                Numbered(("x",), (1,), 2),
                Cancelling(("x",), 3),
            ],
            id="an unanswered cancel that happened",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                Killed(60),
                delivered("x", 1, 70, count=1),
                Settled("x", 1, 80),
            ],
            id="a lock that a kill ended",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                replace(delivered("x", 1, 50), at_ms=90),
                Killed(60),
                delivered("x", 1, 70, count=1),
                Settled("x", 1, 80),
            ],
            id="a delivery from before the completion, read after it",
        ),
        pytest.param(
            [
                Sent(("x",), 1),
                delivered("x", 1, 50),
                DeadLettering("x", 60),
                Killed(70),
                delivered("x", 1, 80, count=1),
                Settled("x", 1, 90),
                replace(delivered("x", 1, 100), is_dead=True),
            ],
            id="an unanswered dead-lettering that left it in both",
        ),
    ],
)
def test_what_is_allowed(history: History) -> None:
    """A state that a kill may leave behind is no fault."""
    assert check(history) == []
