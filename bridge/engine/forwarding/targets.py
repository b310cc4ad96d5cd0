"""The entities that messages are forwarded to: what they take, and why a message cannot go there.

A message waits for a target that a migration holds, and for one that is full if its forwarder has
it wait. What its target does not take otherwise cannot be forwarded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.engine import texts
from bridge.machine.inbox.fanout import NO_SESSION_DESCRIPTION, NO_SESSION_REASON
from bridge.model import entity as model
from bridge.model.availability import held_text, refusal_of_sends
from bridge.model.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageSizeExceeded,
    QuotaExceeded,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.tiers import message_size_max_bytes

_REASONS: dict[type[ServiceBusError], str] = {
    EntityNotFound: "MessagingEntityNotFoundException",
    EntityDisabled: "MessagingEntityDisabledException",
    QuotaExceeded: "QuotaExceededException",
    MessageSizeExceeded: "MessageSizeExceededException",
}
"""A target's refusal -> the name of Azure's exception for it, which is the dead letter's reason, as
it is in Azure for a filter's error."""

FindTarget = Callable[[str, bool], Awaitable[model.Entity | None]]
"""Returns an entity, or `None`; with True it is read from RabbitMQ now."""


class CannotForward(Exception):
    """A message cannot be forwarded.

    Attributes:
        reason, description: the reason and description of its dead letter.
        is_for_good: whether the fault is the message's, and not the target's state.
    """

    def __init__(self, reason: str, description: str, *, is_for_good: bool) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description
        self.is_for_good = is_for_good


def refused(error: ServiceBusError, *, is_for_good: bool = False) -> CannotForward:
    """Return the reason why a target takes no messages, in a dead letter's words."""
    reason = _REASONS.get(type(error), type(error).__name__)
    return CannotForward(reason, str(error), is_for_good=is_for_good)


class ForwardingTargets:
    """The queues and topics that one forwarder's messages go to.

    Args:
        find: returns a target's definition.
        full: returns why an entity takes no more messages now; "" if it takes them.
    """

    def __init__(self, find: FindTarget, full: Callable[[model.SendEntity], str]) -> None:
        self._find = find
        self._full = full
        self._doubtful: set[str] = set()

    def doubt(self, path: str) -> None:
        """Read a target from RabbitMQ when it is asked for next: it has not taken a message."""
        self._doubtful.add(path)

    async def open(self, path: str) -> model.SendEntity:
        """Return a target that takes messages now.

        Raises:
            CannotForward: there is no such queue or topic, or it is disabled.
            ServerBusy: a migration holds it.
            QuotaExceeded: it is full.
            BrokerError, ServiceBusError: it cannot be read.
        """
        is_doubtful = path in self._doubtful
        found = await self._find(path, is_doubtful) if path else None
        if found is None and path and not is_doubtful:
            found = await self._find(path, True)
        self._doubtful.discard(path)
        if not isinstance(found, model.Queue | model.Topic):
            raise refused(EntityNotFound(texts.not_found(path)))
        if found.held:
            raise ServerBusy(held_text(found))
        if (disabled := refusal_of_sends(found)) is not None:
            raise refused(disabled)
        if full := self._full(found):
            raise QuotaExceeded(full)
        return found


def check_message(
    target: model.SendEntity, tier: model.Tier, size_bytes: int, session_id: str | None
) -> None:
    """Refuse a message that a target takes from no sender.

    Raises:
        CannotForward: it is too large, or has no session and needs one.
    """
    limit_bytes = message_size_max_bytes(target, tier)
    if size_bytes > limit_bytes:
        text = texts.too_large(target.path, size_bytes, limit_bytes)
        raise refused(MessageSizeExceeded(text), is_for_good=True)
    if isinstance(target, model.Queue) and target.requires_session and session_id is None:
        raise CannotForward(NO_SESSION_REASON, NO_SESSION_DESCRIPTION, is_for_good=True)
