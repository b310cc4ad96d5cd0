"""The sidecar killed at each of its failpoints, and RabbitMQ killed under it.

A history is judged by stamped identity: nothing that was accepted is lost, no message has two
numbers, no number names two messages, no number is missing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pika.exceptions
import pytest

from bridge.broker.failpoint import STEPS
from bridge.model.entity import Queue
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.sidecar import Rig, Seen
from tests.fixtures.waiting import WITHIN_S, eventually

pytestmark = pytest.mark.kills

MakeRig = Callable[..., Rig]

SITES = ("sequencer.number", "sequencer.ownership", "scheduler.activate")
POINTS = [f"{site}.{step}" for site in SITES for step in STEPS]
# What is written into the journal only has nothing to ack.
POINTS += ["sequencer.journal.published", "sequencer.journal.confirmed"]
PASSES = (1, 2, 5)

QUIET_S = 0.5
"""What is there twice comes within this time after the last message that is awaited."""


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


@dataclass
class History:
    """What was accepted, and what came out.

    Attributes:
        sent: bodies that RabbitMQ confirmed.
        unsure: bodies that may have been taken.
        native: bodies of native messages, which a kill may double.
    """

    sent: set[bytes] = field(default_factory=set)
    unsure: set[bytes] = field(default_factory=set)
    native: set[bytes] = field(default_factory=set)

    def judge(
        self, seen: Iterable[Seen], *, can_repeat: bool = False, can_share: bool = False
    ) -> None:
        """Check everything.

        Args:
            can_repeat: a number may come twice, with its own message.
            can_share: a number may be given once more, as nobody is left who knows of it.
        """
        by_number: dict[int, bytes] = {}
        by_body: dict[bytes, set[int]] = {}
        copies = 0
        for each in seen:
            copies += each.number in by_number
            first = by_number.setdefault(each.number, each.body)
            assert can_share or first == each.body, "two messages"
            by_body.setdefault(each.body, set()).add(each.number)
            if "x-busbridge-scheduled" in each.headers:
                waited_as = int(each.headers["x-busbridge-scheduled"])
                key = b"waiting " + each.body
                first = by_number.setdefault(waited_as, key)
                assert can_share or first == key, "two messages"
                by_body.setdefault(key, set()).add(waited_as)
        assert can_repeat or copies == 0
        assert self.sent <= by_body.keys(), f"lost: {self.sent - by_body.keys()}"
        asked = self.sent | self.unsure
        for body, numbers in by_body.items():
            bare = body.removeprefix(b"waiting ")
            assert bare in asked
            assert can_share or len(numbers) == 1 or bare in self.native, f"{body!r} has {numbers}"
        missing = set(range(1, max(by_number) + 1)) - by_number.keys()
        assert not missing, f"a gap: {sorted(missing)[:10]}"


def drain(rig: Rig, wanted: set[bytes]) -> list[Seen]:
    """Consume until everything wanted has come, or nothing does for so long, and nothing more."""
    seen: list[Seen] = []
    missing = set(wanted)
    channel = rig.connection.channel()
    channel.basic_qos(prefetch_count=500)

    def on_message(_channel: object, method: object, properties: object, body: bytes) -> None:
        assert isinstance(properties, pika.BasicProperties)
        seen.append(Seen(body, properties.headers or {}, properties, time.time() * 1000))
        missing.discard(body)
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_consume(names.active_queue(rig.queue.name), on_message)
    quiet_from = time.monotonic()
    count = 0
    while time.monotonic() - quiet_from < (WITHIN_S if missing else QUIET_S):
        rig.connection.process_data_events(0.05)
        if len(seen) != count:
            count, quiet_from = len(seen), time.monotonic()
    channel.close()
    return seen


def load(rig: Rig, history: History, *, due_ms: int) -> None:
    """Publish batches, native messages and schedules."""
    for index in range(12):
        bodies = [b"batch %d %d" % (index, place) for place in range(3)]
        rig.send(*bodies)
        scheduled = [b"scheduled %d %d" % (index, place) for place in range(2)]
        rig.send(*scheduled, due_ms=due_ms + 20 * index)
        native = b"native %d" % index
        rig.publish(native, message_id=str(index))
        history.sent |= {*bodies, *scheduled, native}
        history.native.add(native)


LARGE = 700
"""Messages of an envelope that is numbered in parts."""


@pytest.mark.parametrize("point", [f"sequencer.number.{step}" for step in STEPS])
@pytest.mark.parametrize("nth", [1, 2, 6])
def test_a_kill_within_a_large_envelope_numbers_all_of_it_once(
    rig: MakeRig, point: str, nth: int
) -> None:
    """Its arrival comes again: the messages that have numbers keep them, the others get theirs."""
    orders = rig()
    history = History()
    bodies = [b"large %d" % place for place in range(LARGE)]
    behind = [b"behind %d" % place for place in range(nth)]  # each step is passed once for each
    orders.send(*bodies)
    for body in behind:
        orders.send(body)
    history.sent |= {*bodies, *behind}
    doomed = orders.start(failpoint=f"{point}:{nth}")
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()
    seen = drain(orders, history.sent)
    history.judge(seen, can_repeat=True)
    first: dict[bytes, int] = {}
    for each in seen:
        first.setdefault(each.body, each.number)
    assert sorted(first, key=lambda body: first[body]) == [*bodies, *behind]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", PASSES)
def test_a_kill_at_any_point_loses_and_renumbers_nothing(
    rig: MakeRig, point: str, nth: int
) -> None:
    """The successor goes on where the journal ends; what comes twice has one number."""
    orders = rig()
    history = History()
    load(orders, history, due_ms=now_ms() + 700)
    doomed = orders.start(failpoint=f"{point}:{nth}")
    end = time.monotonic() + 120
    while doomed.process.poll() is None and time.monotonic() < end:
        # Snapshots, ownership tokens and the rest are passed again and again only under load; and
        # what was due before the sidecar was up is not scheduled any more.
        at_ms = now_ms()
        orders.send(now := b"more %d" % at_ms)
        orders.send(soon := b"more, soon %d" % at_ms, due_ms=at_ms + 700)
        # What is due so soon needs no bucket; this does.
        orders.send(later := b"more, later %d" % at_ms, due_ms=at_ms + 3_000)
        history.sent |= {now, soon, later}
        orders.connection.sleep(0.002)
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()

    history.judge(drain(orders, history.sent), can_repeat=True)


def test_a_kill_with_much_on_its_way(rig: MakeRig) -> None:
    """A message in the journal comes once or twice, though thousands were not confirmed."""
    orders = rig()
    history = History()
    for batch in range(150):
        bodies = [b"%d %d" % (batch, place) for place in range(10)]
        orders.send(*bodies)
        history.sent |= {*bodies}
    doomed = orders.start(failpoint="sequencer.number.confirmed")
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()

    history.judge(drain(orders, history.sent), can_repeat=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_while_a_message_moves_to_a_finer_bucket(rig: MakeRig, step: str) -> None:
    """It is in the coarse bucket, in the finer one or in both, and becomes active once."""
    orders = rig()
    history = History()
    doomed = orders.start(failpoint=f"scheduler.move.{step}:3", finest_ms=60)
    load(orders, history, due_ms=now_ms() + 9_000)
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start(finest_ms=60)

    history.judge(drain(orders, history.sent), can_repeat=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_while_an_expired_message_goes_back(rig: MakeRig, step: str) -> None:
    """It reaches the dead-letter queue; as a native message it may do so twice."""
    orders = rig(dead_lettering_on_message_expiration=True)
    orders.publish(b"late", expiration="1")
    eventually(lambda: not orders.is_empty(names.EXPIRED_UNNUMBERED))
    doomed = orders.start(failpoint=f"expired_unnumbered.return.{step}")
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()

    (dead,) = orders.take(1, queue=names.dead_letter_queue(orders.queue.name))

    assert (dead.body, dead.headers["DeadLetterReason"]) == (b"late", "TTLExpiredException")


def test_a_kill_after_the_answer_keeps_what_was_answered(rig: MakeRig) -> None:
    """A sender that was told the number of a schedule can cancel it at the successor."""
    orders = rig()
    doomed = orders.start(failpoint="sequencer.answered")
    (number,) = orders.schedule(b"a", due_ms=now_ms() + 60_000)
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()

    orders.cancel(number)
    assert orders.schedule(b"b", due_ms=now_ms() + 60_000) == [number + 1]


# pika leaves the socket of a killed peer to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("dies_again", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_rabbitmq_killed_under_load(
    start_broker: Callable[[], Broker], request: pytest.FixtureRequest, dies_again: bool
) -> None:
    """Nothing confirmed is lost and no number names two messages; copies have their own number.

    With `dies_again` the sidecar is killed too, while it publishes again what was not confirmed.
    Then nobody knows the numbers of what the active queue has and the journal has not.
    """
    broker = start_broker()
    assert broker.node is not None
    with broker.fresh_vhost() as vhost:
        orders = Rig(broker, vhost, Queue(name="orders"))
        request.addfinalizer(orders.close)
        failpoint = "sequencer.again.published" if dies_again else ""
        sidecar = orders.start(failpoint=failpoint)
        history = History()
        # A quorum queue that is younger than a second may be forgotten by a kill.
        orders.connection.sleep(2)
        for round_ in range(3):
            _send_until_killed(orders, history, broker, round_)
            broker.node.start()
            orders.connect()
            if sidecar.process.poll() is not None or (dies_again and round_ == 1):
                sidecar = orders.start()
        seen = drain(orders, history.sent)
        history.judge(seen, can_repeat=True, can_share=dies_again)


def _send_until_killed(orders: Rig, history: History, broker: Broker, round_: int) -> None:
    assert broker.node is not None
    for index in range(1_000_000):
        bodies = {b"%d %d %d" % (round_, index, place) for place in range(20)}
        history.unsure |= bodies
        try:
            due_ms = now_ms() + 500 if index % 10 == 0 else None
            orders.send(*bodies, due_ms=due_ms)
            history.sent |= bodies
            if index == 300:
                broker.node.kill()
        except pika.exceptions.AMQPError:
            return
