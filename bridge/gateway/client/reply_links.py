"""The links on which a client takes the replies of `$cbs` and of an entity's `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from bridge.machine.amqp10.events import CreditChanged
from bridge.machine.amqp10.link import OutgoingLink
from bridge.machine.amqp10.session import AmqpSession
from bridge.wire.amqp10.performatives import Source, Target

REPLIES_WAITING_MAX = 2_000
"""Replies that wait for a client's credit; beyond that the oldest is dropped."""

OnSent = Callable[[bool], None]
"""Called once for a reply: whether it is in the client's output, or the client will not have it."""


def unheard(is_sent: bool) -> None:
    """Do nothing: nobody has to know what became of the reply."""


def address_of(terminus: Any) -> str:
    """Return the address of a source or target, "" if it has none."""
    if isinstance(terminus, Source | Target) and isinstance(terminus.address, str):
        return terminus.address
    return ""


class ReplyLink:
    """A link on which a client takes the replies of a node.

    Args:
        links: all such links of the connection.
        flush_soon: called when there is output.

    Attributes:
        node: the node's path in lower case, `$cbs` or `orders/$management`.
        names: the values of a request's reply-to for this link: its target's address, and its name.
    """

    def __init__(
        self, links: ReplyLinks, flush_soon: Callable[[], None], link: OutgoingLink, node: str
    ) -> None:
        self.link = link
        self.node = node
        self._links = links
        self._flush_soon = flush_soon
        self._waiting: deque[tuple[bytes, OnSent]] = deque()
        self._unwritten: deque[OnSent] = deque()
        self.names = {link.name, address_of(link.peer.target)} - {""}
        link.owner = self
        link.accept(is_settled=True)
        links.add(self)

    def send(self, payload: bytes, on_sent: OnSent = unheard) -> None:
        """Send a reply, now or when there is credit."""
        self._waiting.append((payload, on_sent))
        self._flush()
        if len(self._waiting) > REPLIES_WAITING_MAX:
            _, dropped = self._waiting.popleft()
            dropped(False)

    def on_credit(self, event: CreditChanged) -> None:
        """Send waiting replies within the client's credit."""
        self._flush()
        if event.drain:
            self.link.drained()

    def _flush(self) -> None:
        while self._waiting and self.link.credit > 0 and self.link.is_open:
            payload, on_sent = self._waiting.popleft()
            self.link.send(uuid4().bytes, payload, is_settled=True)
            self._unwritten.append(on_sent)
            if not self.link.is_blocked:
                self.on_written()
        self._flush_soon()

    def on_written(self) -> None:
        """Note that the oldest reply that was sent is in the client's output."""
        self._unwritten.popleft()(True)

    def on_detached(self) -> None:
        """Drop the waiting replies of a link that is gone."""
        self._links.remove(self)
        unsent = [*self._unwritten, *(on_sent for _, on_sent in self._waiting)]
        self._unwritten.clear()
        self._waiting.clear()
        for on_sent in unsent:
            on_sent(False)


class ReplyLinks:
    """The reply links of one connection, by node, reply-to and AMQP session."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, AmqpSession | None], dict[ReplyLink, None]] = {}

    def add(self, link: ReplyLink) -> None:
        """Add an attached link."""
        for key in self._keys(link):
            self._found.setdefault(key, {})[link] = None

    def remove(self, link: ReplyLink) -> None:
        """Remove a link that is gone."""
        for key in self._keys(link):
            links = self._found.get(key, {})
            links.pop(link, None)
            if not links:
                self._found.pop(key, None)

    @staticmethod
    def _keys(link: ReplyLink) -> list[tuple[str, str, AmqpSession | None]]:
        names = (*link.names, "")
        return [(link.node, name, at) for name in names for at in (link.link.session, None)]

    def drop_all(self) -> None:
        """Drop the waiting replies of all links: the connection is closed."""
        for link in {each for links in self._found.values() for each in links}:
            link.on_detached()

    def find(self, node: str, reply_to: str, session: AmqpSession) -> ReplyLink | None:
        """Return the link for a reply: named by the request, else of its session, else any."""
        for key in ((reply_to, session), (reply_to, None), ("", session), ("", None)):
            links = self._found.get((node, *key))
            if links:
                return next(iter(links))
        return None
