"""Links: credit, deliveries, settlement, refusal."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.machine.amqp10.events import (
    CreditChanged,
    Event,
    LinkDetached,
    MessageArrived,
    MessageRefused,
    OperationMissed,
    OutcomeArrived,
)
from bridge.machine.amqp10.faults import LinkFault
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Received,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from bridge.wire.amqp10.types import Described, Symbol, Ulong
from tests.unit.machine.amqp10.peer import CREDIT, MESSAGE_BYTES_MAX, Peer

FIRST = 0x40000000


def opened(**limits: Any) -> Peer:
    """A peer with a session."""
    return Peer(limits=Limits(**limits)).open().begin()


# -- attaching


def test_attach_is_answered() -> None:
    """Our attach has the peer's addresses and modes, and of what it asks for what is in force."""
    peer = opened()
    source = Source(
        "q",
        durable=2,
        filter={Symbol("f"): Described(Ulong(5), "x")},
        outcomes=("amqp:accepted:list", "b"),
    )
    peer.attach_receiver(4, source=source, snd_settle_mode=0, rcv_settle_mode=1)

    (answer,) = peer.take(Attach)
    assert (answer.name, answer.handle, answer.role) == ("receiver-4", 4, False)
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 1)
    assert answer.source == Source("q", outcomes=("amqp:accepted:list",))
    assert answer.target == Target("client")
    assert answer.initial_delivery_count == 0
    assert peer.take(Flow) == []


def test_sender_gets_credit() -> None:
    """A link on which the peer sends is answered with credit and the size limit."""
    peer = opened()
    peer.attach_sender(1)

    (answer,) = peer.take(Attach)
    (flow,) = peer.take(Flow)
    assert (answer.role, answer.max_message_size) == (True, MESSAGE_BYTES_MAX)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (1, 0, CREDIT)
    assert flow.next_incoming_id == 0


@pytest.mark.parametrize("role", [True, False])
def test_refused_link(role: bool) -> None:
    """A refused link has neither source nor target, and is detached with the reason."""
    peer = Peer(accepts=False).open().begin()
    (event,) = peer.send(Attach("x", 1, role, source=Source("a"), target=Target("b")))
    event.link.refuse("amqp:not-found", "no such thing")
    peer.collect()

    (answer,) = peer.take(Attach)
    (detach,) = peer.take(Detach)
    assert (answer.source, answer.target) == (None, None)
    assert (detach.handle, detach.closed) == (1, True)
    assert detach.error == Error("amqp:not-found", "no such thing", {})
    assert peer.send(Detach(1, True)) == []
    assert peer.take(Detach) == []


def test_detach_and_attach_again() -> None:
    """A handle can be used again when its link is detached."""
    peer = opened()
    first = peer.attach_sender(3)
    assert peer.send(Detach(3, True)) == [LinkDetached(first)]
    assert peer.take(Detach) == [Detach(3, True)]

    second = peer.attach_receiver(3)

    assert second.is_open
    assert not first.is_open


def test_detach_without_closing_is_answered_alike() -> None:
    """A detach that does not close is answered by one that does not close."""
    peer = opened()
    peer.attach_sender(3)
    peer.send(Detach(3, False))

    assert peer.take(Detach) == [Detach(3, False)]


def test_handle_in_use() -> None:
    """A handle that is in use costs the session; the connection goes on."""
    peer = opened()
    link = peer.attach_sender(0)
    events = peer.send(Attach("other", 0, True))

    assert peer.take(End)[0].error.condition == "amqp:session:handle-in-use"
    assert events == [LinkDetached(link)]
    assert peer.transfer(0) == []
    peer.send(End())
    peer.begin()
    assert peer.attach_sender(0).is_open


def test_late_answer() -> None:
    """A link may be answered later; credit that came before the answer is not forgotten."""
    peer = Peer(accepts=False).open().begin()
    (event,) = peer.send(Attach("x", 0, True, source=Source("a")))
    assert peer.credit(5) == []
    event.link.accept()
    peer.collect()

    assert event.link.credit == 5
    assert len(peer.take(Attach)) == 1


def test_detached_before_the_answer() -> None:
    """A link that is given up is answered at once, by an attach to nothing, and never again."""
    peer = Peer(accepts=False).open().begin()
    (event,) = peer.send(Attach("x", 0, True, source=Source("a")))
    assert peer.send(Detach(0, True)) == [LinkDetached(event.link)]
    event.link.accept()
    event.link.refuse("amqp:x", "y")
    peer.collect()

    (attach,), (detach,) = peer.take(Attach), peer.take(Detach)
    assert attach.source is None
    assert (detach.closed, detach.error) == (True, None)
    assert not event.link.is_alive


# -- messages in


def test_message_arrives() -> None:
    """A message in one frame, with all that the owner needs."""
    peer = opened()
    link = peer.attach_sender()

    assert peer.transfer(7, b"body") == [MessageArrived(link, 7, 0, b"body", False, None)]
    assert link.credit == CREDIT - 1


def test_message_in_parts() -> None:
    """A message in several frames is put together; parts of two links may be mixed."""
    peer = opened()
    link, other = peer.attach_sender(0), peer.attach_sender(1)
    assert peer.transfer(0, b"one ", more=True) == []
    assert peer.transfer(1, b"other", handle=1, more=True) == []
    assert peer.transfer(None, b"two ", more=True) == []
    assert link.held_bytes == 8

    assert peer.transfer(None, b"three") == [
        MessageArrived(link, 0, 0, b"one two three", False, None)
    ]
    assert (link.held_bytes, other.held_bytes) == (0, 5)
    assert link.credit == CREDIT - 1


def test_settled_by_a_later_part() -> None:
    """A message is settled when any of its frames says so."""
    peer = opened()
    peer.attach_sender()
    peer.transfer(0, b"a", more=True)
    peer.transfer(None, b"b", more=True, settled=True)
    (event,) = peer.transfer(None, b"c")

    assert event.is_settled


def test_aborted_message() -> None:
    """An aborted message is forgotten, and the next one is whole."""
    peer = opened()
    link = peer.attach_sender()
    peer.transfer(0, b"junk", more=True)
    assert peer.transfer(None, b"more junk", aborted=True) == []

    assert link.held_bytes == 0
    assert peer.transfer(1, b"good") == [MessageArrived(link, 1, 0, b"good", False, None)]


def test_mixed_up_parts() -> None:
    """A delivery that begins inside another costs the session."""
    peer = opened()
    peer.attach_sender()
    peer.transfer(0, b"a", more=True)
    peer.transfer(1, b"b")

    assert peer.take(End)[0].error.condition == "amqp:invalid-field"


def test_no_delivery_id() -> None:
    """A message that begins without an id costs the session."""
    peer = opened()
    peer.attach_sender()
    peer.transfer(None, b"a")

    assert peer.take(End)[0].error.condition == "amqp:invalid-field"


def test_no_credit() -> None:
    """A sender without credit loses the link, and only that."""
    peer = opened()
    link, other = peer.attach_sender(0), peer.attach_sender(1)
    for each in range(CREDIT):
        peer.transfer(each)
    events = peer.transfer(CREDIT)

    (detach,) = peer.take(Detach)
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    assert events == [LinkDetached(link)]
    assert peer.transfer(CREDIT + 1) == []
    assert len(peer.transfer(CREDIT + 2, handle=1)) == 1
    assert other.is_open


def test_credit_again() -> None:
    """Credit that is granted anew counts from what has come."""
    peer = opened()
    link = peer.attach_sender()
    peer.transfer(0)
    peer.take(Flow)
    link.grant(3)
    peer.collect()

    (flow,) = peer.take(Flow)
    assert (flow.delivery_count, flow.link_credit) == (1, 3)


@pytest.mark.parametrize("parts", [1, 3])
def test_too_large(parts: int) -> None:
    """A message that is too large is read past and rejected; the link stays."""
    peer = opened()
    link = peer.attach_sender()
    for part in range(parts):
        events = peer.transfer(
            None if part else 0, bytes(MESSAGE_BYTES_MAX // parts + 1), more=part < parts - 1
        )
        assert link.held_bytes <= MESSAGE_BYTES_MAX

    assert events == [MessageRefused(link)]
    (disposition,) = peer.take(Disposition)
    assert disposition.state.error.condition == "amqp:link:message-size-exceeded"
    assert disposition.state.error.info == {}
    assert link.is_open
    assert len(peer.transfer(1, bytes(MESSAGE_BYTES_MAX))) == 1


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("size", [1, MESSAGE_BYTES_MAX])
def test_any_part_of_a_message_names_its_transaction(place: int, size: int) -> None:
    """Also of one that is too large, and that its transaction lacks from then on."""
    peer = opened()
    link = peer.attach_sender()
    state = TransactionalState(b"id")
    events: list[Event] = []
    for part in range(3):
        said = state if part == place else None
        number = None if part else 0
        events += peer.transfer(number, bytes(size), more=part < 2, state=said)

    if size > 1:
        missed, refused = events
        assert isinstance(missed, OperationMissed)
        assert missed.txn_id == b"id"
        assert refused == MessageRefused(link)
    else:
        (arrived,) = events
        assert isinstance(arrived, MessageArrived)
        assert arrived.state == state


def test_a_message_whose_link_ends_meanwhile_is_missed_by_its_transaction() -> None:
    """Only its first part has named that."""
    peer = opened()
    link = peer.attach_sender()
    peer.transfer(0, b"x", more=True, state=TransactionalState(b"id"))
    link.detach("amqp:link:detach-forced", "For a test.")
    (missed,) = peer.transfer(None, b"y")
    assert isinstance(missed, OperationMissed)


def test_too_large_and_settled() -> None:
    """A message that is too large and settled can only be refused by detaching."""
    peer = opened()
    peer.attach_sender()
    peer.transfer(0, bytes(MESSAGE_BYTES_MAX + 1), settled=True)

    assert peer.take(Detach)[0].error.condition == "amqp:link:message-size-exceeded"


def test_outcomes_of_messages_in() -> None:
    """Outcomes in a row are one disposition; another outcome or number begins another."""
    peer = opened()
    link = peer.attach_sender()
    for each in range(6):
        peer.transfer(each)
    for each in (0, 1, 2):
        link.settle(each, Accepted())
    link.settle(3, Released())
    link.settle(5, Released())
    peer.collect()

    assert peer.take(Disposition) == [
        Disposition(True, 0, 2, True, Accepted()),
        Disposition(True, 3, None, True, Released()),
        Disposition(True, 5, None, True, Released()),
    ]


# -- messages out


def test_send() -> None:
    """A message goes out with a number far from the peer's own, and uses credit."""
    peer = opened()
    link = peer.attach_receiver()
    assert peer.credit(2) == [CreditChanged(link, 2, False)]
    delivery = link.send(b"tag", b"body", is_settled=False)
    link.send(b"tag2", b"body2", is_settled=True)
    frames = [entry for entry in peer.collect() if isinstance(entry[1], Transfer)]

    assert frames == [
        (0, Transfer(0, FIRST, b"tag", 0, False), b"body"),
        (0, Transfer(0, FIRST + 1, b"tag2", 0, True), b"body2"),
    ]
    assert delivery is not None
    assert (link.credit, link.delivery_count, len(link.unsettled)) == (0, 2, 1)


def test_credit_counts_from_the_delivery_count() -> None:
    """Credit is counted from what the peer had seen when it granted it."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=True)
    link.send(b"2", b"", is_settled=True)

    assert peer.credit(5, count=1) == [CreditChanged(link, 4, False)]
    assert peer.credit(0, count=2) == [CreditChanged(link, 0, False)]


def test_largest_credit_and_window() -> None:
    """A peer may grant all that a uint can say, also after some of it is used."""
    peer = opened()
    link = peer.attach_receiver()
    everything = 2**32 - 1
    assert peer.credit(everything, incoming_window=everything)[0].credit == everything
    link.send(b"1", b"x", is_settled=True)
    peer.collect()
    (event,) = peer.credit(everything, count=0, next_incoming_id=FIRST, incoming_window=everything)

    assert isinstance(event, CreditChanged)
    assert event.credit == everything - 1
    assert len(peer.take(Transfer)) == 1
    link.send(b"2", b"x", is_settled=True)
    peer.collect()
    assert len(peer.take(Transfer)) == 1


def test_drain() -> None:
    """A drain is answered with the count moved on and no credit, once."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=True)
    assert peer.credit(5, count=0, drain=True) == [CreditChanged(link, 4, True)]
    peer.take(Flow)
    link.drained()
    link.drained()
    peer.collect()

    (flow,) = peer.take(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (5, 0, True)


def test_drain_of_nothing() -> None:
    """Credit 0 with drain takes credit back, and is answered even when there was none."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(0, drain=True)
    link.drained()
    peer.collect()

    (flow,) = peer.take(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)
    peer.credit(5)
    assert peer.credit(0, drain=True) == [CreditChanged(link, 0, True)]


def test_echo() -> None:
    """A question is answered: for a link, for a session."""
    peer = opened()
    peer.attach_receiver(0)
    peer.attach_sender(1)
    peer.take(Flow)
    peer.credit(3, echo=True)
    peer.credit(0, handle=1, echo=True)
    peer.send(Flow(0, 1, 0, 1, echo=True))

    assert [(flow.handle, flow.link_credit) for flow in peer.take(Flow)] == [
        (0, 3),
        (1, CREDIT),
        (None, None),
    ]


def test_outcome_and_confirmation() -> None:
    """The peer's outcome is told; our confirmation names the same delivery, settled."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    deliveries = [link.send(bytes((each,)), b"", is_settled=False) for each in range(3)]
    events = peer.send(Disposition(True, FIRST, FIRST + 1, False, Modified(True)))
    assert events == [OutcomeArrived(link, deliveries[:2], Modified(True), False)]
    for delivery in deliveries[:2]:
        assert delivery is not None
        link.session.settle_outgoing(delivery, Modified(True))
    peer.collect()

    assert peer.take(Disposition) == [Disposition(False, FIRST, FIRST + 1, True, Modified(True))]
    assert len(link.unsettled) == 1


def test_settled_outcome_is_forgotten() -> None:
    """An outcome that comes settled needs no answer and comes once."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=False)
    disposition = Disposition(True, FIRST, None, True, Accepted())

    assert len(peer.send(disposition)) == 1
    assert peer.send(disposition) == []


def test_range_over_everything() -> None:
    """A range of four billion costs no more than what there is in it."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=False)
    (event,) = peer.send(Disposition(True, 0, 0x7FFFFFFF, False, Accepted()))

    assert isinstance(event, OutcomeArrived)
    assert len(event.deliveries) == 1
    assert peer.send(Disposition(True, 5, 1, False, Accepted())) == []


def test_no_outcome() -> None:
    """How much has arrived is no outcome, and what the peer says of its own is not ours."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=False)

    assert peer.send(Disposition(True, FIRST, None, False, Received(0, 0))) == []
    assert peer.send(Disposition(False, FIRST, None, True, Accepted())) == []
    assert peer.send(Disposition(True, FIRST, None, True, None)) == []
    assert len(link.unsettled) == 0


def test_no_unsettled_delivery_is_forgotten() -> None:
    """A peer that settles too little gets no more, and each of its outcomes is still told."""
    peer = opened(unsettled_max=3)
    link = peer.attach_receiver()
    peer.credit(10)
    deliveries = [link.send(bytes((each,)), b"", is_settled=False) for each in range(3)]
    with pytest.raises(LinkFault, match="has 3 unsettled deliveries"):
        link.send(b"\3", b"", is_settled=False)
    link.send(b"\4", b"", is_settled=True)
    assert link.credit == 6
    events = peer.send(Disposition(True, FIRST, None, False, Accepted()))
    assert events == [OutcomeArrived(link, deliveries[:1], Accepted(), False)]
    assert deliveries[0] is not None
    link.session.settle_outgoing(deliveries[0], Accepted())

    assert link.send(b"\5", b"", is_settled=False) is not None


def test_detach_by_us() -> None:
    """We detach with an error; the link takes and gives no more."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(5)
    link.send(b"1", b"", is_settled=False)
    link.detach("amqp:unauthorized-access", "expired")
    assert link.send(b"2", b"", is_settled=False) is None
    peer.collect()

    assert peer.take(Detach)[0].error == Error("amqp:unauthorized-access", "expired", {})
    assert peer.send(Disposition(True, FIRST, None, False, Accepted())) == []
    assert peer.credit(5, count=1) == []
    assert peer.send(Detach(0, True)) == []
    assert peer.attach_receiver(0).is_open


def test_unknown_handles() -> None:
    """A frame for a handle without a link costs the session."""
    for performative in (
        Transfer(9, 0, b"t"),
        Flow(0, 1, 0, 1, 9, 0, 1),
        Detach(9, True),
    ):
        peer = opened()
        peer.send(performative, b"")
        assert peer.take(End)[0].error.condition == "amqp:session:unattached-handle"


def test_transfer_on_a_receiving_link() -> None:
    """A client cannot send where it asked to receive."""
    peer = opened()
    peer.attach_receiver()
    peer.transfer(0)

    assert peer.take(End)[0].error.condition == "amqp:session:unattached-handle"


# -- windows


def test_incoming_window() -> None:
    """The window is opened again at half; who sends beyond it loses the session."""
    peer = opened(incoming_window=4)
    link = peer.attach_sender()
    link.grant(100)
    peer.collect()
    peer.take(Flow)
    peer.transfer(0)
    assert peer.take(Flow) == []
    peer.transfer(1)
    (flow,) = peer.take(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (2, 4, None)


def test_window_violation() -> None:
    """A window of nothing takes nothing."""
    peer = opened(incoming_window=0)
    peer.attach_sender()
    peer.transfer(0)

    assert peer.take(End)[0].error.condition == "amqp:session:window-violation"


def test_outgoing_window() -> None:
    """We send as much as the peer's window takes; the rest follows in order when it opens."""
    peer = Peer().open()
    peer.begin(incoming_window=2)
    link = peer.attach_receiver()
    window = {"incoming_window": 2}
    peer.credit(10, **window)
    for each in range(5):
        link.send(bytes((each,)), bytes((each,)), is_settled=True)
    peer.collect()
    assert [payload for _, item, payload in peer.frames if isinstance(item, Transfer)] == [
        b"\0",
        b"\1",
    ]
    assert link.session.blocked_bytes == 3
    peer.take(Transfer)

    peer.send(Flow(FIRST + 2, 2, 0, 1))

    assert [payload for _, item, payload in peer.frames if isinstance(item, Transfer)] == [
        b"\2",
        b"\3",
    ]
    link.detach("amqp:x", "y")
    assert link.session.blocked_bytes == 0


def test_window_counts_what_the_peer_has_not_seen() -> None:
    """A window told before our last transfers came is shorter by these."""
    peer = opened()
    link = peer.attach_receiver()
    peer.credit(10)
    for each in range(2):
        link.send(bytes((each,)), b"x", is_settled=True)
    peer.credit(10, next_incoming_id=FIRST, incoming_window=3)
    for each in range(2):
        link.send(bytes((each,)), b"y", is_settled=True)
    peer.collect()

    assert len(peer.take(Transfer)) == 3
    assert link.session.blocked_bytes == 1


def test_large_message_out() -> None:
    """A message larger than the peer's frames goes out in several, each within its size."""
    peer = Peer().open(max_frame_size=512).begin()
    link = peer.attach_receiver()
    peer.credit(1)
    body = bytes(range(256)) * 5
    link.send(b"0123456789abcdef", body, is_settled=False)
    raw = peer.endpoint.take_output()
    sizes = []
    while raw:
        sizes.append(int.from_bytes(raw[:4], "big"))
        peer._raw += raw[: sizes[-1]]
        raw = raw[sizes[-1] :]
    peer.collect()
    parts = [entry for entry in peer.frames if isinstance(entry[1], Transfer)]

    assert max(sizes) <= 512
    assert b"".join(payload for _, _, payload in parts) == body
    assert [part.more for _, part, _ in parts] == [True] * (len(parts) - 1) + [False]
    assert [part.delivery_id for _, part, _ in parts] == [FIRST] + [None] * (len(parts) - 1)


def test_numbers_wrap() -> None:
    """Transfer ids and delivery counts go on after 2^32 - 1."""
    peer = Peer().open()
    peer.begin(next_outgoing_id=0xFFFFFFFF)
    link = peer.attach_sender(initial_delivery_count=0xFFFFFFFF)
    peer.transfer(0xFFFFFFFF)
    peer.transfer(0)
    peer.take(Flow)
    link.grant(5)
    peer.collect()

    (flow,) = peer.take(Flow)
    assert (flow.next_incoming_id, flow.delivery_count) == (1, 1)
    assert isinstance(peer.take(Begin)[0], Begin)
