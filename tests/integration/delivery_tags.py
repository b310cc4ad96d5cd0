"""RabbitMQ's rules for the delivery tags of one channel, played to any client of AMQP 0-9-1.

Read in RabbitMQ's `rabbit_channel` (`collect_acks`), and tried with RabbitMQ in
`test_settlement_order.py`: a settlement names a tag that is unacked on the channel, else RabbitMQ
closes the channel (406), and everything unacked goes back. With `multiple` it settles all unacked
tags up to that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pamqp.commands as spec

from tests.integration.scripted_broker import Peer

ACKED, REJECTED, DROPPED, NACKED = "acked", "rejected", "dropped", "nacked"

Settled = tuple[str, int]
"""What became of a delivery, and its tag."""

QUEUE = "q"

ENDED = 320, "an operator has ended the channel"


class UnknownTag(Exception):
    """A settlement names a tag that is not unacked; RabbitMQ closes the channel."""


class Unacked:
    """The unacked deliveries of a channel.

    Attributes:
        tags: in the order of delivery.
        settled: what became of the others, in the order of their settlement.
    """

    def __init__(self) -> None:
        self.tags: list[int] = []
        self.settled: list[Settled] = []
        self._last = 0

    def deliver(self) -> int:
        """Return the tag of one more delivery."""
        self._last += 1
        self.tags.append(self._last)
        return self._last

    def settle(self, tag: int, how: str, *, multiple: bool = False) -> None:
        """Take a settlement.

        Raises:
            UnknownTag: the tag is not unacked, whatever else is.
        """
        if tag not in self.tags:
            raise UnknownTag(f"PRECONDITION_FAILED - unknown delivery tag {tag}")
        for each in [each for each in self.tags if each == tag or (multiple and each < tag)]:
            self.tags.remove(each)
            self.settled.append((how, each))


class Queue:
    """A queue with one client, whose channel 1 consumes and gets messages.

    Args:
        ends_after: how many frames are carried out from the first delivery on; at the next one
            RabbitMQ ends the channel.

    Attributes:
        unacked: the deliveries of the channel.
        refusal: why RabbitMQ has closed the channel.
        got: the tags that answered gets.
        is_ended: whether RabbitMQ has ended the channel, other than for a wrong frame.
    """

    def __init__(self, ends_after: int | None = None) -> None:
        self.unacked = Unacked()
        self.is_ended = False
        self._left = ends_after
        self._has_delivered = False
        self.refusal: str | None = None
        self.got: list[int] = []
        self._consumer = ""
        self._peer: Peer | None = None
        self._is_closed = asyncio.Event()

    async def script(self, peer: Peer) -> None:
        """Serve the client up to the close of its channel."""
        self._peer = peer
        await peer.log_in()
        await peer.open_channel()
        while not self._is_closed.is_set():
            self._answer(peer, await peer.read())

    def end(self) -> None:
        """End the channel, unless it has ended."""
        if not self.is_ended:
            assert self._peer is not None
            self.is_ended = True
            self._peer.send(spec.Channel.Close(*ENDED, 0, 0))

    async def closed(self) -> None:
        """Wait for the end of the channel."""
        await self._is_closed.wait()

    def deliver(self, count: int) -> None:
        """Deliver messages to the consumer."""
        assert self._peer is not None
        self._has_delivered = True
        for _ in range(count):
            deliver = spec.Basic.Deliver(self._consumer, self.unacked.deliver(), False, "", QUEUE)
            self._peer.send_message(deliver, b"m", spec.Basic.Properties())

    def _answer(self, peer: Peer, frame: Any) -> None:
        if isinstance(frame, spec.Channel.Close):
            peer.send(spec.Channel.CloseOk())
            self._is_closed.set()
        elif isinstance(frame, spec.Channel.CloseOk):
            self._is_closed.set()
        elif self.refusal is None and not self.is_ended:
            if self._left is not None and self._has_delivered:
                if not self._left:
                    self.end()
                    return
                self._left -= 1
            try:
                self._carry_out(peer, frame)
            except UnknownTag as refusal:
                self.refusal = str(refusal)
                peer.send(spec.Channel.Close(406, self.refusal, 60, 80))

    def _carry_out(self, peer: Peer, frame: Any) -> None:
        match frame:
            case spec.Basic.Ack():
                self.unacked.settle(frame.delivery_tag, ACKED, multiple=frame.multiple)
            case spec.Basic.Reject():
                self.unacked.settle(frame.delivery_tag, REJECTED if frame.requeue else DROPPED)
            case spec.Basic.Nack():
                how = NACKED if frame.requeue else DROPPED
                self.unacked.settle(frame.delivery_tag, how, multiple=frame.multiple)
            case spec.Basic.Qos():
                peer.send(spec.Basic.QosOk())
            case spec.Channel.Flow():
                peer.send(spec.Channel.FlowOk(True))
            case spec.Basic.Consume():
                self._consumer = frame.consumer_tag
                peer.send(spec.Basic.ConsumeOk(frame.consumer_tag))
            case spec.Basic.Cancel():
                peer.send(spec.Basic.CancelOk(frame.consumer_tag))
            case spec.Basic.Get():
                self.got.append(self.unacked.deliver())
                found = spec.Basic.GetOk(self.got[-1], False, "", QUEUE, 0)
                peer.send_message(found, b"m", spec.Basic.Properties())
            case _:
                raise AssertionError(f"{frame!r} is no part of this script")


def is_beginning(settled: Sequence[Settled], asked: Sequence[Settled]) -> bool:
    """Return whether all of `asked` was settled up to a frame, but for some acks side by side."""
    ordered = in_order(asked)
    for how, tag in in_order(settled):
        if how == ACKED:
            upto = next((at for at, each in enumerate(ordered) if each[0] != ACKED), len(ordered))
            if (how, tag) not in ordered[:upto]:
                return False
            ordered.remove((how, tag))
        elif ordered and ordered[0] == (how, tag):
            ordered.pop(0)
        else:
            return False
    return True


def in_order(settled: Sequence[Settled]) -> list[Settled]:
    """Return settlements in a comparable order: acks that follow one another may be exchanged."""
    ordered: list[Settled] = []
    acks: list[Settled] = []
    for each in [*settled, None]:
        if each is not None and each[0] == ACKED:
            acks.append(each)
        else:
            ordered += sorted(acks)
            acks.clear()
            if each is not None:
                ordered.append(each)
    return ordered
