"""The client's end of a connection, against our own server's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.machine.amqp10.client import CLIENT_LIMITS, PLAIN
from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.endpoint import ConnectionState
from bridge.machine.amqp10.events import (
    Closed,
    CreditChanged,
    DeliveriesSettled,
    Drained,
    LinkDetached,
    LinkOpened,
    MessageArrived,
    Opened,
    OutcomeArrived,
)
from bridge.machine.amqp10.faults import ConnectionFault, LinkFault, make_error
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import BATCH_FORMAT
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Modified,
    Rejected,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from tests.unit.machine.amqp10.pair import CREDIT, Pair, client_endpoint
from tests.unit.machine.amqp10.peer import frame

LOCK_LOST = make_error("com.microsoft:message-lock-lost", "The lock is lost.")


def test_a_connection_opens() -> None:
    """By ANONYMOUS; the server learns whom it is asked for."""
    pair = Pair().open()

    assert pair.login == ("ANONYMOUS", b"")
    assert pair.client.state is pair.server.state is ConnectionState.OPEN
    (opened,) = pair.take_server(Opened)
    assert opened.open.hostname == "localhost"
    assert opened.open.properties == {"product": "test"}
    assert opened.open.idle_time_out == 60_000
    assert len(pair.take(Opened)) == 1


def test_a_login_by_name_and_key() -> None:
    """By PLAIN: the response has both."""
    assert Pair(mechanism=PLAIN, response=b"\0name\0key").open().login == ("PLAIN", b"\0name\0key")


def test_a_refused_login_has_a_name() -> None:
    """The connection ends with it."""
    pair = Pair(mechanism=PLAIN, response=b"\0wrong\0key").open()

    (closed,) = pair.take(Closed)
    assert closed.error.condition == "amqp:unauthorized-access"
    assert pair.client.state is ConnectionState.FINISHED


def test_a_mechanism_that_is_not_offered() -> None:
    """The offered ones are named."""
    (closed,) = Pair(mechanism="EXTERNAL").open().take(Closed)

    assert closed.error.condition == "amqp:unauthorized-access"
    assert "by ANONYMOUS, PLAIN" in closed.error.description


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        ProtocolHeader.AMQP.value,
        ProtocolHeader.SASL.value + encode_frame(0, SaslOutcome(0), frame_type=1),
        ProtocolHeader.SASL.value + encode_frame(0, SaslMechanisms(("ANONYMOUS",))),
        ProtocolHeader.SASL.value + b"\xff\xff\xff\xff\x02\x01\x00\x00",
    ],
    ids=["HTTP", "0-9-1", "no SASL", "an outcome at once", "no SASL frame", "a huge frame"],
)
def test_a_server_of_another_protocol_is_named(answer: bytes) -> None:
    """With an error, and no more input is read."""
    client = client_endpoint()

    (closed,) = client.receive(answer, 1_000)

    assert isinstance(closed, Closed)
    assert closed.is_fault
    assert closed.error.condition == "amqp:connection:framing-error"
    assert list(client.receive(answer, 1_000)) == []


def test_a_server_that_cannot_log_in_anybody() -> None:
    """SASL's codes from 2 on are the server's fault: nobody's key is wrong."""
    client = client_endpoint()
    offered = encode_frame(0, SaslMechanisms(("ANONYMOUS",)), frame_type=1)
    outcome = encode_frame(0, SaslOutcome(4), frame_type=1)

    (closed,) = client.receive(ProtocolHeader.SASL.value + offered + outcome, 1_000)

    assert closed.error.condition == "amqp:internal-error"


def test_messages_are_received_and_settled() -> None:
    """Each outcome is told, and confirmed by the server; tags are kept until then."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    assert [each.link for each in pair.take(LinkOpened)] == [link]
    link.grant(3)
    pair.pump()
    server = pair.server_link("in")
    for number in range(3):
        server.send(bytes((number,)) * 16, b"m%d" % number, is_settled=False)

    arrived = [each for each in pair.pump() if isinstance(each, MessageArrived)]

    assert [each.payload for each in arrived] == [b"m0", b"m1", b"m2"]
    ids = [each.delivery_id for each in arrived]
    assert [link.unsettled[each] for each in ids] == [bytes((n,)) * 16 for n in range(3)]
    assert link.credit == 0
    for each in ids[:2]:
        link.tell_outcome(each, Accepted(), is_settled=False)
    link.tell_outcome(ids[2], Modified(True), is_settled=False)
    pair.pump()
    outcomes = pair.take_server(OutcomeArrived)
    assert [(len(each.deliveries), each.outcome) for each in outcomes] == [
        (2, Accepted()),
        (1, Modified(True)),
    ]
    assert link.unsettled
    for each in outcomes:
        for delivery in each.deliveries:
            delivery.link.session.settle_outgoing(delivery, each.outcome)
    pair.pump()
    settled = pair.take(DeliveriesSettled)
    assert [(each.delivery_ids, each.outcome) for each in settled] == [
        (ids[:2], Accepted()),
        (ids[2:], Modified(True)),
    ]
    assert not link.unsettled
    assert not server.unsettled


def test_an_outcome_that_the_server_refuses() -> None:
    """Arrives as a rejection with its error, for that delivery alone."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(2)
    pair.pump()
    server = pair.server_link("in")
    deliveries = [server.send(b"t%d" % each, b"m", is_settled=False) for each in range(2)]
    ids = [each.delivery_id for each in pair.pump() if isinstance(each, MessageArrived)]
    for each in ids:
        link.tell_outcome(each, Accepted(), is_settled=False)
    pair.pump()

    server.session.settle_outgoing(deliveries[1], Rejected(LOCK_LOST))
    pair.pump()

    (settled,) = pair.take(DeliveriesSettled)
    assert settled.delivery_ids == ids[1:]
    assert settled.outcome.error.condition == "com.microsoft:message-lock-lost"
    assert list(link.unsettled) == ids[:1]


def test_a_release_that_waits_for_no_answer() -> None:
    """Settled by the client: forgotten at once, at both ends."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(1)
    pair.pump()
    pair.server_link("in").send(b"t", b"m", is_settled=False)
    (arrived,) = [each for each in pair.pump() if isinstance(each, MessageArrived)]

    link.tell_outcome(arrived.delivery_id, Accepted(), is_settled=True)
    pair.pump()

    (outcome,) = pair.take_server(OutcomeArrived)
    assert outcome.is_settled
    assert not link.unsettled
    assert not pair.server_link("in").unsettled


def test_only_neighbours_of_one_fate_share_a_disposition() -> None:
    """A disposition ends at another outcome, at a gap, and at a delivery settled at once."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(6)
    pair.pump()
    for number in range(6):
        pair.server_link("in").send(b"%d" % number, b"m", is_settled=False)
    ids = [each.delivery_id for each in pair.pump() if isinstance(each, MessageArrived)]

    for each, is_settled in ((0, False), (1, False), (2, True), (4, True), (3, False), (5, False)):
        link.tell_outcome(ids[each], Accepted(), is_settled=is_settled)
    pair.pump()

    told = [
        ([each.tag for each in event.deliveries], event.is_settled)
        for event in pair.take_server(OutcomeArrived)
    ]
    assert told == [
        ([b"0", b"1"], False),
        ([b"2"], True),
        ([b"4"], True),
        ([b"3"], False),
        ([b"5"], False),
    ]


def test_settled_messages_need_no_outcome() -> None:
    """Deliveries that came settled are forgotten."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(1)
    pair.pump()
    pair.server_link("in").send(b"t", b"m", is_settled=True)

    (arrived,) = [each for each in pair.pump() if isinstance(each, MessageArrived)]

    assert arrived.is_settled
    assert not link.unsettled


def test_a_message_in_many_frames_both_ways() -> None:
    """Cut to the peer's frame size, and put together."""
    pair = Pair(limits=replace(CLIENT_LIMITS, frame_bytes_max=1_024)).open()
    session = pair.begin()
    link, sender = pair.receiver(session), pair.sender(session)
    link.grant(1)
    pair.pump()
    large = bytes(range(256)) * 100

    sender.send(b"t", large, 0, is_settled=False)
    pair.server_link("in").send(b"u", large, is_settled=False)
    pair.pump()

    assert [each.payload for each in pair.take_server(MessageArrived)] == [large]
    assert [each.payload for each in pair.take(MessageArrived)] == [large]
    assert list(link.unsettled.values()) == [b"u"]


def test_messages_are_sent_and_their_outcomes_come() -> None:
    """In one range or alone; the credit is the server's."""
    pair = Pair().open()
    sender = pair.sender(pair.begin())
    assert sender.credit == CREDIT
    assert [each.credit for each in pair.take(CreditChanged)] == [CREDIT]
    sent = [sender.send(b"%d" % each, b"m", 0, is_settled=False) for each in range(3)]
    pair.pump()
    server, arrived = pair.server_link("out"), pair.take_server(MessageArrived)

    for each in arrived[:2]:
        server.settle(each.delivery_id, Accepted())
    server.settle(arrived[2].delivery_id, Rejected(make_error("amqp:not-allowed", "no")))
    pair.pump()

    outcomes = pair.take(OutcomeArrived)
    assert [each.deliveries for each in outcomes] == [sent[:2], sent[2:]]
    assert outcomes[1].outcome.error.condition == "amqp:not-allowed"
    assert sender.credit == CREDIT - 3
    assert not sender.unsettled


def test_a_batch_has_its_format_also_when_it_waits_for_the_window() -> None:
    """In the first frame of each, of which more follow when the window opens."""
    limits = replace(Limits(), incoming_window=2, frame_bytes_max=512)
    pair = Pair(server_limits=limits).open()
    sender = pair.sender(pair.begin())

    for each in (BATCH_FORMAT, 0, BATCH_FORMAT):
        sender.send(b"t", b"x" * 2_000, each, is_settled=False)
    pair.pump()

    arrived = pair.take_server(MessageArrived)
    assert [each.message_format for each in arrived] == [BATCH_FORMAT, 0, BATCH_FORMAT]
    assert {each.payload for each in arrived} == {b"x" * 2_000}


def test_a_drain_is_answered_behind_the_messages() -> None:
    """Then the credit is 0 at both ends, and the counts agree."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(5)
    pair.pump()
    server = pair.server_link("in")
    server.send(b"t", b"m", is_settled=False)
    link.drain()
    pair.pump()
    (credit,) = [each for each in pair.take_server(CreditChanged) if each.drain]
    assert credit.credit == 4

    server.drained()
    events = pair.pump()

    assert [type(each) for each in events] == [Drained]
    assert link.credit == server.credit == 0
    assert link.delivery_count == server.delivery_count == 5
    link.grant(1)
    pair.pump()
    assert server.credit == 1


def test_a_refused_link_ends_with_the_servers_error() -> None:
    """It never opens; its handle is free again."""
    pair = Pair(accepts=False).open()
    session = pair.begin()
    for attach in (pair.receiver, pair.sender):
        link = attach(session, "refused")
        pair.server_link("refused").refuse("amqp:not-found", "No q.")
        pair.pump()

        assert pair.take(LinkOpened) == []
        assert [each.link for each in pair.take(LinkDetached)] == [link]
        assert (link.error.condition, link.error.description) == ("amqp:not-found", "No q.")
        assert link.handle == 0
        assert not link.is_alive


def test_a_link_that_the_server_detaches() -> None:
    """Tells once, with the error; it is answered."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    server = pair.server_link("in")
    server.detach("amqp:link:detach-forced", "idle")

    events = pair.pump()

    assert [type(each) for each in events] == [LinkDetached]
    assert link.error.condition == "amqp:link:detach-forced"
    assert pair.server.link_count == pair.client.link_count == 0
    assert link.session.links == {}


def test_a_link_that_the_client_detaches() -> None:
    """Ends at both ends; messages on their way are ignored."""
    pair = Pair().open()
    session = pair.begin()
    link = pair.receiver(session)
    link.grant(1)
    pair.pump()
    pair.server_link("in").send(b"t", b"m", is_settled=False)
    link.end()

    events = pair.pump()

    assert [type(each) for each in events] == [LinkDetached]
    assert link.error is None
    assert pair.server.link_count == pair.client.link_count == 0
    again = pair.receiver(session)
    assert again.handle == link.handle
    assert again.is_open


def test_a_link_that_is_given_up_before_its_answer() -> None:
    """Never opens."""
    pair = Pair(accepts=False).open()
    link = pair.receiver(pair.begin())
    link.end()
    pair.pump()

    assert pair.take(LinkOpened) == []
    assert [each.link for each in pair.take(LinkDetached)] == [link]


def test_a_session_ends_with_its_links() -> None:
    """By the client; the channel is free again when the server has answered."""
    pair = Pair().open()
    session = pair.begin()
    link = pair.receiver(session)
    session.end(None)
    pair.pump()

    assert [each.link for each in pair.take(LinkDetached)] == [link]
    assert pair.server.sessions == pair.client.sessions == {}
    assert pair.begin().channel == session.channel


def test_a_session_that_the_server_ends() -> None:
    """Its error is that of each link."""
    pair = Pair().open()
    session = pair.begin()
    link = pair.receiver(session)
    next(iter(pair.server.sessions.values())).end(make_error("amqp:internal-error", "oh"))
    pair.pump()

    assert [each.link for each in pair.take(LinkDetached)] == [link]
    assert link.error.condition == session.error.condition == "amqp:internal-error"


def test_a_connection_that_the_server_closes() -> None:
    """All links end, then the connection, with the error."""
    pair = Pair().open()
    pair.receiver(pair.begin())
    pair.server.close("amqp:connection:forced", "The server stops.")

    events = pair.pump()

    assert [type(each) for each in events] == [LinkDetached, Closed]
    assert events[1].error.condition == "amqp:connection:forced"
    assert not events[1].is_fault


def test_a_connection_that_the_client_closes() -> None:
    """Without an error, after what it has written before."""
    pair = Pair().open()
    sender = pair.sender(pair.begin())
    sender.send(b"t", b"m", 0, is_settled=True)
    pair.client.close()
    pair.pump()

    assert len(pair.take_server(MessageArrived)) == 1
    assert pair.client.state is pair.server.state is ConnectionState.FINISHED


def test_a_lost_transport_ends_all_links() -> None:
    """Those without an answer, too."""
    pair = Pair().open()
    session = pair.begin()
    link = pair.receiver(session)
    asked = session.attach_receiver(
        "asked", Source("q"), Target("asked"), snd_settle_mode=0, rcv_settle_mode=0
    )

    events = pair.client.lost()

    assert {each.link for each in events if isinstance(each, LinkDetached)} == {link, asked}
    with pytest.raises(ConnectionFault):
        pair.client.begin()
    with pytest.raises(LinkFault):
        session.attach_receiver(
            "late", Source("q"), Target("late"), snd_settle_mode=0, rcv_settle_mode=0
        )


def test_a_silent_server_is_gone_and_a_quiet_client_is_not() -> None:
    """The client writes heartbeats; without the server's it closes with an error."""
    pair = Pair(server_limits=replace(Limits(), idle_time_out_ms=20_000)).open()
    written = 0
    while pair.client.state is ConnectionState.OPEN:
        pair.now_ms = pair.client.deadline_ms
        events = pair.client.tick(pair.now_ms)
        written += pair.client.take_output() == b"\0\0\0\x08\x02\0\0\0"

    assert written >= 5
    assert pair.now_ms - 1_000 == 2 * 60_000
    assert events[-1].error.condition == "amqp:connection:forced"


def test_idle_ends_stay_connected_for_an_hour() -> None:
    """Each one's heartbeats come before the other's time-out."""
    pair = Pair().open()
    while pair.now_ms < 3_600_000:
        pair.now_ms = min(pair.client.deadline_ms, pair.server.deadline_ms)
        assert pair.client.tick(pair.now_ms) == pair.server.tick(pair.now_ms) == []
        assert pair.pump() == []

    assert pair.client.state is pair.server.state is ConnectionState.OPEN


def test_two_sessions_have_channels_of_their_own() -> None:
    """Frames of one session do not come on the other's channel."""
    pair = Pair().open()
    first, second = pair.begin(), pair.begin()
    assert (first.channel, second.channel) == (0, 1)
    one, two = pair.sender(first, "one"), pair.sender(second, "two")
    two.send(b"t", b"2", 0, is_settled=True)
    one.send(b"t", b"1", 0, is_settled=True)
    pair.pump()

    found = {each.link.name: each.payload for each in pair.take_server(MessageArrived)}
    assert found == {"one": b"1", "two": b"2"}


# -- what only another server does


def opened() -> Pair:
    """Return a pair whose client awaits the answer to its begin, which is written by hand."""
    pair = Pair().open()
    pair.client.begin()
    pair.client.take_output()
    return pair


def test_a_server_has_channels_and_handles_of_its_own() -> None:
    """What comes is found by them; what goes has the client's."""
    pair = Pair().open()
    session = pair.client.begin()
    link = session.attach_receiver(
        "in", Source("q"), Target("in"), snd_settle_mode=0, rcv_settle_mode=1
    )
    pair.client.take_output()
    answer = Attach(name="in", handle=77, role=False, source=Source("q"), initial_delivery_count=9)
    raw = frame(5, Begin(0, 3, 100, 100)) + frame(5, answer)
    assert [type(each) for each in pair.client.receive(raw, 1_000)] == [LinkOpened]
    link.grant(2)
    pair.client.take_output()

    raw = frame(5, Transfer(77, 3, b"t", 0), b"m")
    (arrived,) = pair.client.receive(raw, 1_000)

    assert arrived.link is link
    assert (link.handle, session.channel) == (0, 0)
    assert link.delivery_count == 10


@pytest.mark.parametrize(
    "raw",
    [
        frame(0, Begin(None, 0, 100, 100)),
        frame(0, Begin(9, 0, 100, 100)),
        frame(0, Begin(0, 0, 100, 100)) + frame(0, Begin(0, 0, 100, 100)),
        frame(0, Begin(0, 0, 100, 100)) + frame(0, Begin(None, 0, 100, 100)),
        frame(3, Attach(name="x", handle=0, role=True)),
        frame(0, SaslOutcome(0)),
    ],
    ids=["unasked", "unknown channel", "twice", "in use", "no session", "SASL"],
)
def test_a_server_that_breaks_a_rule_loses_the_connection(raw: bytes) -> None:
    """With an error that has a name."""
    pair = opened()

    events = list(pair.client.receive(raw, 1_000))

    assert isinstance(events[-1], Closed)
    assert events[-1].is_fault
    assert events[-1].error.condition.startswith("amqp:")


@pytest.mark.parametrize(
    "raw",
    [
        frame(0, Attach(name="in", handle=0, role=False, source=Source("q"))),
        frame(0, Detach(7, True)),
        frame(0, Transfer(7, 0, b"t", 0), b"m"),
    ],
    ids=["unasked link", "unknown handle", "transfer of none"],
)
def test_a_server_that_breaks_a_sessions_rule_loses_the_session(raw: bytes) -> None:
    """The connection stays."""
    pair = opened()
    assert list(pair.client.receive(frame(0, Begin(0, 0, 100, 100)), 1_000)) == []
    (session,) = pair.client.sessions.values()
    assert isinstance(session, ClientSession)

    assert list(pair.client.receive(raw, 1_000)) == []

    assert session.is_ended
    assert session.error.condition.startswith("amqp:")
    assert pair.client.state is ConnectionState.OPEN


def test_more_messages_than_credit_end_the_link() -> None:
    """And the other links stay."""
    pair = Pair().open()
    session = pair.begin()
    link, other = pair.receiver(session), pair.receiver(session, "other")
    pair.server_link("in").send(b"t", b"m", is_settled=False)
    pair.take(LinkOpened)

    events = pair.pump()

    assert [each.link for each in events if isinstance(each, LinkDetached)] == [link]
    assert link.error.condition == "amqp:link:transfer-limit-exceeded"
    assert other.is_open
    assert not link.unsettled


def test_an_aborted_delivery_leaves_nothing() -> None:
    """Its tag is forgotten."""
    pair = Pair().open()
    link = pair.receiver(pair.begin())
    link.grant(2)
    pair.client.take_output()
    raw = frame(0, Transfer(0, 0x40000000, b"t", 0, more=True), b"m")
    raw += frame(0, Transfer(0, None, None, None, aborted=True))

    assert list(pair.client.receive(raw, 1_000)) == []

    assert not link.unsettled
    assert link.held_bytes == 0
