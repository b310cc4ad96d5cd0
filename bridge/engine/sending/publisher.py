"""Publishing to one exchange or queue, on its own channel: a dead target stops no other one.

RabbitMQ confirms no publish to a dead queue. After 30 s without a confirm the channel is ended,
which only this target uses. Publishes for which the channel has no room wait: with more, RabbitMQ
would read nothing from the whole connection (see `broker/connection/publisher.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, NotStored, PublishRefused
from bridge.broker.handover import Acks, HandOver, Publish
from bridge.broker.outcome import Done
from bridge.wire.headers import DIRECT_REPLY_TO

SILENT_S = 5.0
"""The time without a confirm after which a target is silent: RabbitMQ confirms within milliseconds,
after the election of a leader within a second or two."""


def _ignore(error: BrokerError | None) -> None:
    pass


class TargetPublisher:
    """The publisher of one target, as long as its channel lasts.

    Args:
        connection: the connection, on which the channel is opened at once.
        target: the exchange, or the queue behind the default exchange; for the log.
        on_reply: called with the replies to questions.
        clock: the loop's clock.

    Attributes:
        channel: the channel, in confirm mode.
        used_s: the time of the last publish (the loop's clock).
    """

    def __init__(
        self,
        connection: Connection,
        target: str,
        *,
        on_reply: Callable[[Delivery], None],
        clock: Callable[[], float],
    ) -> None:
        self.channel: Channel = connection.channel_soon(target)
        self.channel.publisher.confirm_select()
        self.used_s = clock()
        self._on_reply = on_reply
        self._clock = clock
        self._handover = HandOver(self.channel)
        self._waiting: deque[tuple[Callable[[], object], Done]] = deque()
        self._has_replies = False
        self._progress_s = self.used_s

    def __repr__(self) -> str:
        return f"<TargetPublisher on {self.channel!r} [{len(self._waiting)} waiting]>"

    @property
    def is_idle(self) -> bool:
        """Whether no publish is unconfirmed or waiting."""
        return not self.channel.publisher.unconfirmed and not self._waiting

    @property
    def silent_s(self) -> float:
        """The time since the last confirm, while publishes are unconfirmed; 0 below `SILENT_S`.

        An alarm of RabbitMQ is no silence: it reads nothing then.
        """
        if self.channel.is_blocked:
            return 0.0
        wait_s = self._clock() - self._progress_s
        return wait_s if self.channel.publisher.unconfirmed and wait_s >= SILENT_S else 0.0

    def unblocked(self) -> None:
        """Begin to wait for confirms anew: RabbitMQ's alarm is over."""
        self._progress_s = self._clock()

    def hear_replies(self) -> None:
        """Consume the replies to questions that are published on this channel."""
        if not self._has_replies:
            self._has_replies = True
            self.channel.consumers.consume_soon(
                DIRECT_REPLY_TO, self._on_reply, tag="replies", prefetch=0, no_ack=True
            )

    def publish(
        self,
        exchange: str,
        key: str,
        properties: bytes,
        body: bytes,
        settled: Done = _ignore,
        *,
        mandatory: bool = True,
    ) -> None:
        """Publish when there is room; `settled` is called once."""
        self._when_room(
            partial(
                self.channel.publisher.publish,
                exchange,
                key,
                properties,
                body,
                mandatory=mandatory,
                settled=partial(self._settled, settled),
            ),
            settled,
        )

    def hand_over(
        self, publishes: Sequence[Publish], acks: Acks, done: Done, failpoint: str
    ) -> None:
        """Hand a message over when there is room; see `HandOver.submit`."""
        self._when_room(
            partial(
                self._handover.submit,
                publishes,
                acks=acks,
                done=partial(self._settled, done),
                failpoint=failpoint,
            ),
            done,
        )

    def lose(self, error: BrokerError) -> None:
        """Fail the waiting publishes: the channel has ended, and they were not written."""
        while self._waiting:
            _, fail = self._waiting.popleft()
            fail(NotStored.because(error))

    def withdraw(self, settled: Done) -> bool:
        """Drop a publish that waits for room; return whether it did, and will not be written."""
        for each in self._waiting:
            if each[1] == settled:
                self._waiting.remove(each)
                return True
        return False

    def _when_room(self, publish: Callable[[], object], fail: Done) -> None:
        self.used_s = self._clock()
        if not self.channel.publisher.unconfirmed:
            self._progress_s = self.used_s
        if self._waiting or self.channel.publisher.room <= 0:
            if self.channel.close_reason is not None:
                raise self.channel.close_reason.again()
            self._waiting.append((publish, fail))
        else:
            publish()

    def _settled(self, settled: Done, error: BrokerError | None) -> None:
        if error is None or isinstance(error, PublishRefused):
            self._progress_s = self._clock()
        settled(error)
        while self._waiting and self.channel.publisher.room > 0:
            if self.channel.close_reason is not None:
                return
            publish, fail = self._waiting.popleft()
            try:
                publish()
            except BrokerError as failure:
                fail(NotStored.because(failure))
