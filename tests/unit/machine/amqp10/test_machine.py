"""Any lawful conversation, in any order: nothing lost, nothing beyond window or credit."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bridge.machine.amqp10.events import MessageArrived, OutcomeArrived
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.wire.amqp10.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Released,
    Transfer,
)
from tests.fixtures.examples import examples
from tests.unit.machine.amqp10.peer import MESSAGE_BYTES_MAX, Peer

FIRST = 0x40000000
FRAME_BYTES = 512
SENDER, RECEIVER = 0, 1


class Conversation(RuleBasedStateMachine):
    """A lawful client with one link in each direction, and what it believes."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer(limits=Limits(incoming_window=6)).open(max_frame_size=FRAME_BYTES)
        self.peer.begin(incoming_window=4)
        self.peer.frames.clear()
        self.incoming: IncomingLink
        self.outgoing: OutgoingLink
        self.sent: list[bytes] = []
        self.arrived: list[bytes] = []
        self.owed: list[bytes] = []
        self.received: list[bytes] = []
        self.part = b""
        self.next_id = 0
        self.send_credit = 0
        self.send_count = 0
        self.window_in = 0
        self.window_out = 4
        self.seen_transfers = 0
        self.count_out = 0
        self.granted = 0
        self.unsettled: list[int] = []
        self.asked: set[int] = set()

    @initialize()
    def attach(self) -> None:
        self.incoming = self.peer.attach_sender(SENDER)
        self.outgoing = self.peer.attach_receiver(RECEIVER)
        self.window_in = 6
        self.absorb()

    def absorb(self) -> None:
        """Believe what the endpoint has written."""
        self.peer.collect()
        for _, item, payload in self.peer.frames:
            assert not isinstance(item, Detach | End | Close), item
            if isinstance(item, Flow):
                self.window_in = item.next_incoming_id + item.incoming_window - self.next_transfer
                if item.handle == SENDER:
                    self.send_credit = item.delivery_count + item.link_credit - self.send_count
            elif isinstance(item, Transfer):
                self.seen_transfers += 1
                self.window_out -= 1
                assert self.window_out >= 0, "beyond the window"
                self.part += payload
                if item.delivery_id is not None:
                    self.count_out += 1
                    if not item.settled:
                        self.unsettled.append(item.delivery_id)
                if not item.more:
                    self.received.append(self.part)
                    self.part = b""
            elif isinstance(item, Disposition) and not item.role:
                last = item.first if item.last is None else item.last
                for each in range(item.first, last + 1):
                    self.asked.remove(each)
        self.peer.frames.clear()

    next_transfer = 0

    @precondition(lambda self: self.send_credit > 0 and self.window_in >= 3)
    @rule(
        sizes=st.lists(st.integers(0, MESSAGE_BYTES_MAX // 3), min_size=1, max_size=3),
        is_aborted=st.booleans(),
    )
    def send(self, sizes: list[int], is_aborted: bool) -> None:
        """The client sends a message in one to three frames, or breaks it off."""
        number, self.next_id = self.next_id, self.next_id + 1
        parts = [bytes((number % 256,)) * size for size in sizes]
        self.send_credit -= 1
        self.send_count += 1
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            self.next_transfer += 1
            self.window_in -= 1
            events = self.peer.transfer(
                None if at else number,
                part,
                handle=SENDER,
                more=not is_last,
                aborted=is_last and is_aborted,
            )
            self.arrived += [event.payload for event in events if isinstance(event, MessageArrived)]
        if not is_aborted:
            self.sent.append(b"".join(parts))
        self.absorb()

    @rule(credit=st.integers(0, 8))
    def grant(self, credit: int) -> None:
        """The owner grants the client credit."""
        self.incoming.grant(credit)
        self.absorb()

    @rule(credit=st.integers(0, 6), window=st.integers(0, 5), drain=st.booleans())
    def ask(self, credit: int, window: int, drain: bool) -> None:
        """The client grants credit and opens its window."""
        self.window_out = window
        self.granted = credit
        self.peer.credit(
            credit,
            handle=RECEIVER,
            count=self.count_out,
            next_incoming_id=FIRST + self.seen_transfers,
            incoming_window=window,
            drain=drain,
        )
        self.absorb()
        if drain:
            self.outgoing.drained()
            self.peer.collect()
            flows = [item for _, item, _ in self.peer.frames if isinstance(item, Flow)]
            for flow in flows:
                assert flow.link_credit == 0
                self.count_out = flow.delivery_count - self.blocked
            self.absorb()

    @property
    def blocked(self) -> int:
        """Messages that are sent and wait for the window."""
        return len(self.owed) - len(self.received) - bool(self.part)

    @precondition(lambda self: self.outgoing.credit > 0)
    @rule(size=st.integers(0, 1_500), is_settled=st.booleans())
    def deliver(self, size: int, is_settled: bool) -> None:
        """The owner sends a message."""
        payload = bytes((len(self.owed) % 256,)) * size
        self.owed.append(payload)
        self.outgoing.send(b"0123456789abcdef", payload, is_settled=is_settled)
        self.absorb()

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data(), is_settled=st.booleans())
    def settle(self, data: st.DataObject, is_settled: bool) -> None:
        """The client settles some deliveries; the owner confirms at once."""
        first = data.draw(st.sampled_from(self.unsettled))
        last = data.draw(st.sampled_from([each for each in self.unsettled if each >= first]))
        outcome = data.draw(st.sampled_from([Accepted(), Released()]))
        chosen = [each for each in self.unsettled if first <= each <= last]
        self.unsettled = [each for each in self.unsettled if each not in chosen]
        self.asked |= set() if is_settled else set(chosen)
        events = self.peer.send(Disposition(True, first, last, is_settled, outcome))
        told = [event for event in events if isinstance(event, OutcomeArrived)]
        assert [each.id for event in told for each in event.deliveries] == chosen
        if not is_settled:
            for event in told:
                for each in event.deliveries:
                    self.outgoing.session.settle_outgoing(each, outcome)
        self.absorb()
        assert not self.asked

    @invariant()
    def nothing_is_lost(self) -> None:
        """What was sent has arrived; what was delivered comes in order; all is accounted for."""
        if not hasattr(self, "outgoing"):
            return
        assert self.arrived == self.sent
        assert self.received == self.owed[: len(self.received)]
        waiting = sum(map(len, self.owed[len(self.received) :])) - len(self.part)
        assert self.outgoing.session.blocked_bytes == waiting
        assert self.incoming.credit == self.send_credit >= 0
        assert self.outgoing.credit >= 0
        assert self.incoming.held_bytes == 0
        assert self.peer.endpoint.output_bytes == 0


Conversation.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestConversation = Conversation.TestCase
