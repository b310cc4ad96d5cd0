"""Messages that are sent settled: each is written whole, and its owner told so, or is dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.amqp10.events import Event, MessageWritten
from bridge.machine.amqp10.limits import DELIVERY_ID_FIRST
from bridge.wire.amqp10.performatives import Detach, Flow, Transfer
from tests.unit.machine.amqp10.peer import Peer

FRAME_BYTES = 512

SENDS = st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 2_000))
WINDOWS = st.tuples(st.just("window"), st.just(0), st.integers(0, 6))
ENDS = st.tuples(st.just("end"), st.integers(0, 1), st.just(0))


@given(steps=st.lists(st.one_of(SENDS, SENDS, WINDOWS, ENDS), max_size=40))
def test_each_settled_message_is_written_whole_or_dropped_with_its_link(
    steps: list[tuple[str, int, int]],
) -> None:
    """Two links share a session's window, which opens and shuts in any order with sends and ends.

    At any moment the messages that were written whole are those that were written as they were
    sent, and those of which the owner was told; the others wait, or their link has ended.
    """
    peer = Peer().open(max_frame_size=FRAME_BYTES).begin(incoming_window=1)
    links = [peer.attach_receiver(handle) for handle in (0, 1)]
    told = [0, 0]
    ended = [False, False]

    def take(events: list[Event]) -> None:
        for event in events:
            if isinstance(event, MessageWritten):
                handle = event.link.handle
                assert not ended[handle]
                told[handle] += 1

    for step, handle, amount in steps:
        if step == "send" and not ended[handle]:
            links[handle].send(b"tag", bytes(amount), is_settled=True)
            told[handle] += not links[handle].is_blocked
        elif step == "window":
            seen = sum(isinstance(frame, Transfer) for _, frame, _ in peer.frames)
            take(peer.send(Flow(DELIVERY_ID_FIRST + seen, amount, 0, 100)))
        elif step == "end" and not ended[handle]:
            peer.send(Detach(handle, True))
            ended[handle] = True
        peer.collect()
        written = [0, 0]
        for _, frame, _ in peer.frames:
            if isinstance(frame, Transfer) and not frame.more:
                written[frame.handle] += 1
        assert written == told
