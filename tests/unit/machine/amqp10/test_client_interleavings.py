"""A client and a server whose bytes cross in any portions: each message is accounted for, once."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.amqp10.client import CLIENT_LIMITS
from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.events import (
    ClientEvent,
    Closed,
    CreditChanged,
    DeliveriesSettled,
    Drained,
    Event,
    LinkAttached,
    LinkDetached,
    LinkOpened,
    MessageArrived,
    OutcomeArrived,
)
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import OutgoingDelivery, OutgoingLink
from bridge.wire.amqp10.performatives import Accepted, Modified, Rejected, Released, Source, Target
from tests.fixtures.examples import examples
from tests.unit.machine.amqp10.pair import Pair

OUTCOMES: list[Any] = [Accepted(), Released(), Modified(True), Rejected()]

ACTIONS = st.one_of(
    st.tuples(st.just("carry up"), st.sampled_from((7, 60, 400, 5_000))),
    st.tuples(st.just("carry up"), st.just(5_000)),
    st.tuples(st.just("carry down"), st.sampled_from((7, 60, 400, 5_000))),
    st.tuples(st.just("carry down"), st.just(5_000)),
    st.tuples(st.just("grant"), st.integers(0, 8)),
    st.tuples(st.just("drain"), st.integers(0, 3)),
    st.tuples(st.just("deliver"), st.sampled_from((0, 0, 0, 900))),
    st.tuples(st.just("deliver"), st.just(0)),
    st.tuples(st.just("settle"), st.integers(0, 11)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("release"), st.integers(0, 11)),
    st.tuples(st.just("settle several"), st.integers(0, 2**9 - 1)),
    st.tuples(st.just("confirm"), st.integers(0, 5)),
    st.tuples(st.just("confirm"), st.just(0)),
    st.tuples(st.just("send"), st.sampled_from((0, 0, 900))),
    st.tuples(st.just("accept"), st.integers(0, 1)),
    st.tuples(st.just("reattach"), st.integers(0, 7)),
    st.tuples(st.just("force"), st.integers(0, 7)),
)


class Run:
    """Both ends, with bytes on their way, and an account of every message."""

    def __init__(self) -> None:
        server_limits = replace(Limits(), frame_bytes_max=512, incoming_window=6)
        limits = replace(CLIENT_LIMITS, frame_bytes_max=512, incoming_window=6)
        self.pair = Pair(limits=limits, server_limits=server_limits)
        self.pair.on_server = self.on_server
        self.pair.open()
        self.session = self.pair.begin()
        self.up, self.down = bytearray(), bytearray()
        self.number = 0
        self.attached = 0
        self.server_link: OutgoingLink | None = None
        self.delivered: dict[str, list[bytes]] = {}
        self.arrived: dict[str, list[bytes]] = {}
        self.waiting: list[tuple[ClientIncomingLink, int]] = []
        self.asked: dict[tuple[str, bytes], Any] = {}
        self.told: Counter[tuple[str, bytes]] = Counter()
        self.to_confirm: list[tuple[OutgoingDelivery, Any]] = []
        self.confirmed: Counter[tuple[str, bytes]] = Counter()
        self.settled_alone: set[tuple[str, bytes]] = set()
        self.tags: dict[tuple[str, int], bytes] = {}
        self.ended: set[str] = set()
        self.sent: dict[bytes, str] = {}
        self.inbox: deque[MessageArrived] = deque()
        self.received: Counter[bytes] = Counter()
        self.decided: dict[bytes, Any] = {}
        self.outcomes: dict[bytes, Any] = {}
        self.drains: Counter[str] = Counter()
        self.receiver = self.attach()
        self.sender: ClientOutgoingLink = self.session.attach_sender(
            "out", Source("out"), Target("q"), snd_settle_mode=0, rcv_settle_mode=0
        )
        self.settle_down()

    def attach(self) -> ClientIncomingLink:
        """Attach a receiver of a new name."""
        self.attached += 1
        name = f"in-{self.attached}"
        return self.session.attach_receiver(
            name, Source("q"), Target(name), snd_settle_mode=0, rcv_settle_mode=1
        )

    # -- bytes

    def gather(self) -> None:
        """Take what both ends have written."""
        self.up += self.pair.client.take_output()
        self.down += self.pair.server.take_output()

    def carry_up(self, size: int) -> None:
        """Give the server some bytes."""
        self.gather()
        portion = bytes(self.up[:size])
        del self.up[:size]
        for event in self.pair.server.receive(portion, 1_000):
            self.pair._serve(event)

    def carry_down(self, size: int) -> None:
        """Give the client some bytes."""
        self.gather()
        portion = bytes(self.down[:size])
        del self.down[:size]
        for event in self.pair.client.receive(portion, 1_000):
            self.on_client(event)

    def settle_down(self) -> None:
        """Carry everything."""
        self.gather()
        while self.up or self.down:
            self.carry_up(len(self.up))
            self.carry_down(len(self.down))
            self.gather()

    # -- events

    def on_client(self, event: ClientEvent) -> None:
        """Account for what the client is told."""
        match event:
            case MessageArrived(link, delivery_id, _, payload):
                assert isinstance(link, ClientIncomingLink)
                tag = link.unsettled[delivery_id]
                self.tags[link.name, delivery_id] = tag
                assert payload[: len(tag)] == tag
                self.arrived.setdefault(link.name, []).append(tag)
                self.waiting.append((link, delivery_id))
            case DeliveriesSettled(link, ids, outcome):
                for each in ids:
                    key = link.name, self.tags[link.name, each]
                    assert self.asked[key] == outcome
                    self.confirmed[key] += 1
            case OutcomeArrived(_, deliveries, outcome):
                for delivery in deliveries:
                    assert delivery.tag not in self.outcomes
                    self.outcomes[delivery.tag] = outcome
            case Drained(link):
                self.drains[link.name] -= 1
                assert link.credit == 0
            case LinkDetached(link):
                assert link.name not in self.ended
                self.ended.add(link.name)
            case LinkOpened(link) if isinstance(link, ClientIncomingLink):
                link.grant(6)
            case Closed():
                raise AssertionError(event)

    def on_server(self, event: Event) -> None:
        """Act as a server does."""
        match event:
            case LinkAttached(link) if isinstance(link, OutgoingLink):
                self.server_link = link
            case MessageArrived(payload=payload):
                self.received[payload[:4]] += 1
                self.inbox.append(event)
            case CreditChanged(link, _, True):
                link.drained()
            case OutcomeArrived(link, deliveries, outcome, is_settled):
                for each in deliveries:
                    self.told[link.name, each.tag] += 1
                    assert self.asked[link.name, each.tag] == outcome
                    assert is_settled is ((link.name, each.tag) in self.settled_alone)
                    if not is_settled:
                        self.to_confirm.append((each, outcome))
            case Closed():
                raise AssertionError(event)

    # -- actions

    def act(self, action: str, value: int) -> None:
        """Do one thing at one end, or carry bytes."""
        getattr(self, "_" + action.replace(" ", "_"))(value)

    def _carry_up(self, size: int) -> None:
        self.carry_up(size)

    def _carry_down(self, size: int) -> None:
        self.carry_down(size)

    def _grant(self, credit: int) -> None:
        if self.receiver.is_open and not self.receiver.is_draining:
            self.receiver.grant(credit)

    def _drain(self, chance: int) -> None:
        if not chance and self.receiver.is_open and not self.receiver.is_draining:
            self.drains[self.receiver.name] += 1
            self.receiver.drain()

    def _deliver(self, size: int) -> None:
        link = self.server_link
        if link is not None and link.is_open and link.credit > 0:
            tag = self._tag()
            link.send(tag, tag + b"x" * size, is_settled=False)
            self.delivered.setdefault(link.name, []).append(tag)

    def _tag(self) -> bytes:
        self.number += 1
        return self.number.to_bytes(4, "big")

    def _tell(self, which: int, *, is_settled: bool) -> None:
        if not self.waiting:
            return
        link, delivery_id = self.waiting.pop(which // 4 % len(self.waiting))
        outcome = OUTCOMES[which % 4]
        if link.is_open:
            key = link.name, self.tags[link.name, delivery_id]
            self.asked[key] = outcome
            if is_settled:
                self.settled_alone.add(key)
            link.tell_outcome(delivery_id, outcome, is_settled=is_settled)

    def _settle(self, which: int) -> None:
        self._tell(which, is_settled=False)

    def _release(self, which: int) -> None:
        self._tell(which, is_settled=True)

    def _settle_several(self, bits: int) -> None:
        for each in range(3):
            found = bits >> 3 * each
            self._tell(4 * (found & 1) + (found >> 1 & 1), is_settled=bool(found >> 2 & 1))

    def _confirm(self, which: int) -> None:
        if self.to_confirm:
            delivery, outcome = self.to_confirm.pop(which % len(self.to_confirm))
            delivery.link.session.settle_outgoing(delivery, outcome)

    def _send(self, size: int) -> None:
        if self.sender.is_open and self.sender.credit > 0:
            tag = self._tag()
            self.sent[tag] = self.sender.name
            self.sender.send(tag, tag + b"y" * size, 0, is_settled=False)

    def _accept(self, which: int) -> None:
        if self.inbox:
            event = self.inbox.popleft()
            self.decided[event.payload[:4]] = OUTCOMES[which]
            event.link.settle(event.delivery_id, OUTCOMES[which])
            event.link.renew(len(self.inbox))

    def _reattach(self, chance: int) -> None:
        if not self.receiver.is_alive:
            self.receiver = self.attach()
        elif not chance and self.receiver.is_open:
            self.receiver.end()
            self.receiver = self.attach()

    def _force(self, chance: int) -> None:
        link = self.server_link
        if not chance and link is not None and link.is_open:
            link.detach("amqp:link:detach-forced", "idle")


@given(st.lists(ACTIONS, min_size=40, max_size=150))
@settings(max_examples=examples(200), deadline=None)
def test_each_message_is_accounted_for(actions: list[tuple[str, int]]) -> None:
    """Whatever crosses on the way.

    Of what the server sent, the client has a beginning, in order and once; all of it on links that
    have not ended. Each outcome reaches the server once, and its confirmation the client, on links
    that live. The server has each message of the client's once, and the client its outcome.
    """
    run = Run()
    for action, value in actions:
        run.act(action, value)
    run.settle_down()
    while run.to_confirm or run.inbox or run.waiting:
        run._confirm(0)
        run._accept(0)
        run._settle(0)
        run.settle_down()

    for name, tags in run.delivered.items():
        arrived = run.arrived.get(name, [])
        assert arrived == tags[: len(arrived)]
        assert name in run.ended or arrived == tags
    for key, outcome in run.asked.items():
        assert run.told[key] <= 1
        if key[0] not in run.ended:
            assert run.told[key] == 1, outcome
            assert run.confirmed[key] == (key not in run.settled_alone)
    assert set(run.received) == set(run.sent) == set(run.outcomes)
    assert set(run.received.values()) <= {1}
    assert run.outcomes == run.decided
    live = run.receiver
    assert run.drains[live.name] == 0 or live.name in run.ended
    if live.is_open:
        assert run.server_link is not None
        assert live.credit == run.server_link.credit
        assert live.delivery_count == run.server_link.delivery_count
        assert not live.unsettled
    assert run.pair.client.held_bytes == run.pair.server.held_bytes == 0
    assert not run.session._received
