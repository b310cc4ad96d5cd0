"""The hand-over of a client's messages that leave their queues (`message.departure`)."""

from __future__ import annotations

from bridge.client.core.publisher import Publisher, is_refused
from bridge.client.core.wire import Wire
from bridge.client.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)
from bridge.machine.inbox.publication import Publication
from bridge.message.departure import Ended, Message, Outcome, Told
from bridge.message.end_rules import MessagePlace
from bridge.message.held import HeldCopy
from bridge.message.moves import Move

LOCK_LOST = (
    "The lock on the message is lost: its time is over, its connection was lost, or the message "
    "was settled before."
)


class ClientHandOver:
    """See `message.departure.HandOver`.

    Args:
        publisher: on the publishing connection, which may be blocked while the receiving one is
            not.

    Attributes:
        sent_back, expired, second_copies: see `message.departure.MoveCounts`.
    """

    passing: tuple[type[Exception], ...] = (ServiceBusError,)

    def __init__(self, wire: Wire, publisher: Publisher) -> None:
        self._publisher = publisher
        self.later = wire.later
        self.sent_back = self.expired = self.second_copies = 0

    def begin(
        self, source: MessagePlace, held: Message, publishes: Move, point: str, ended: Ended
    ) -> None:
        """Publish, and ack the message when everything is confirmed."""

        def confirmed(errors: list[Exception | None]) -> None:
            if held.channel.is_closed:
                ended(Outcome.ACK_LOST, MessageLockLostError(LOCK_LOST))
            elif not any(errors):
                held.channel.ack(held.tag)
                ended(Outcome.MOVED, None)
            else:
                ended(_outcome(errors), next(filter(None, errors)))

        self._publisher.publish_each(publishes, confirmed)

    def show(self, entry: Publication, told: Told) -> None:
        """Publish for peeks that a message whose move was refused is where it was."""
        self._publisher.publish_all((entry,), told)

    def ack(self, held: Message | HeldCopy, point: str) -> None:  # type: ignore[type-arg]
        """Ack a message that is not handed over."""
        held.channel.ack(held.tag)

    def too_large(self, path: str, size_bytes: int) -> MessageSizeExceededError:
        """Return the error for properties that RabbitMQ does not take."""
        return MessageSizeExceededError("The message's properties would be too large.")


def _outcome(errors: list[Exception | None]) -> Outcome:
    """Return the outcome of publishes to the target queue and to the stream for peeks."""
    if errors[0] is None or not is_refused(errors[0]):
        return Outcome.UNKNOWN
    is_all = all(each is not None and is_refused(each) for each in errors)
    return Outcome.HERE if is_all else Outcome.SHOWN
