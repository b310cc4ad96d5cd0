"""The events of one connection's links: each goes to what handles its link."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from bridge.gateway.client.client import Client
from bridge.gateway.client.links import EntityLink
from bridge.gateway.client.reply_links import ReplyLink
from bridge.gateway.connection import attaching
from bridge.gateway.links.receiving import ReceivingLink
from bridge.gateway.links.sending import SendingLink
from bridge.gateway.links.sessions import SessionLink
from bridge.gateway.nodes.coordinator import CoordinatorLink
from bridge.gateway.nodes.request_links import RequestLink
from bridge.machine.amqp10.events import (
    Closed,
    CreditChanged,
    Event,
    LinkAttached,
    LinkDetached,
    MessageArrived,
    MessageRefused,
    MessageWritten,
    Opened,
    OperationMissed,
    OutcomeArrived,
    SaslChosen,
)

LinkEvent = (
    MessageArrived
    | MessageRefused
    | MessageWritten
    | OutcomeArrived
    | CreditChanged
    | LinkAttached
    | LinkDetached
)

FromClient = SendingLink | RequestLink | CoordinatorLink
ToClient = ReceivingLink | SessionLink | ReplyLink
"""What handles links, by the direction of their messages; made once, not with each event."""


class LinkEvents:
    """Passes a connection's events on.

    Args:
        on_own: called with an event that belongs to no link.
    """

    def __init__(self, client: Client, on_own: Callable[[Event], None]) -> None:
        self._client = client
        self._links = client.links
        self._on_own = on_own

    def on_event(self, event: Event) -> None:
        """Pass an event to its link, or to the connection."""
        match event:
            case SaslChosen() | Opened() | Closed() | OperationMissed():
                self._on_own(event)
            case _:
                try:
                    self._on_event(event)
                except Exception as error:
                    self._links.fail(event.link, error)

    def _on_event(self, event: LinkEvent) -> None:
        owner = event.link.owner
        match event:
            case MessageArrived():
                if isinstance(owner, FromClient):
                    owner.on_message(event)
            case MessageRefused():
                if isinstance(owner, FromClient):
                    owner.top_up()
            case MessageWritten():
                if isinstance(owner, ToClient):
                    owner.on_written()
            case OutcomeArrived():
                if isinstance(owner, ReceivingLink | SessionLink):
                    owner.on_outcome(event)
            case CreditChanged():
                if isinstance(owner, ToClient):
                    owner.on_credit(event)
            case LinkAttached():
                try:
                    attaching.attach(self._client, event.link)
                finally:
                    if isinstance(event.link.owner, EntityLink):
                        self._links.add(event.link.owner)
            case LinkDetached():
                if owner is not None:
                    self._links.forget(owner)
            case _:
                assert_never(event)
