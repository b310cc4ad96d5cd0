"""Durable subscribers of a topic, as JMS has them: the subscription is made when it is not there.

The attach names the topic; link and connection name the subscription: `name$client-id$D`, as at
Azure. The right to manage the topic is needed for making it, the right to listen for the rest. The
subscription stays when the link ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeGuard

from bridge.engine.api import NamespaceVerbs, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.gateway.client import texts
from bridge.gateway.client.client import Client, refuse
from bridge.gateway.links.receiving import ReceivingLink
from bridge.machine.amqp10.link import OutgoingLink
from bridge.model import entity as model
from bridge.model.duration import MAX_MS, instant_text
from bridge.model.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    NotAllowed,
    NotImplementedHere,
    ServiceBusError,
)
from bridge.model.name import EntityPath, client_scoped
from bridge.wire.amqp10.performatives import Source
from bridge.wire.link_properties import (
    SHARED_CAPABILITY,
    SUBSCRIPTION_IDLE_S,
    TOPIC_CAPABILITY,
)


def is_subscriber(asked: Any) -> TypeGuard[Source]:
    """Whether a source asks for a durable subscription of a topic."""
    return (
        isinstance(asked, Source)
        and asked.durable > 0
        and TOPIC_CAPABILITY in (asked.capabilities or ())
    )


def idle_ms(opened: Mapping[Any, Any] | None, name: str, otherwise_ms: int) -> int:
    """Return the AutoDeleteOnIdle that a client's `open` asks for by a property, in seconds."""
    given_s = (opened or {}).get(name)
    if isinstance(given_s, int) and not isinstance(given_s, bool) and given_s > 0:
        return int(given_s) * 1000
    return otherwise_ms


def wanted_by(
    client: Client, link: OutgoingLink, path: EntityPath, asked: Source
) -> model.Subscription:
    """Return a subscriber's subscription, as it is made when it is not there.

    Raises:
        EntityNotFound: there is no such topic.
        NotAllowed: the address is no topic's.
        NotImplementedHere: several receivers are to share the subscription.
        ArgumentError: the name of the link, or the client's id, is no part of a name.
    """
    topic = client.namespace.entity(path)
    if not isinstance(topic, model.Topic):
        raise NotAllowed(texts.NO_TOPIC.format(path=path))
    if SHARED_CAPABILITY in (asked.capabilities or ()):
        raise NotImplementedHere(texts.SHARED_NOT_HERE)
    opened = link.session.endpoint.peer
    assert opened is not None
    made_at = instant_text(now_ms())
    return model.Subscription(
        topic=topic.name,
        name=client_scoped(link.name, opened.container_id),
        auto_delete_on_idle_ms=idle_ms(opened.properties, SUBSCRIPTION_IDLE_S, MAX_MS),
        created_at=made_at,
        updated_at=made_at,
    )


def is_there(namespace: NamespaceVerbs, path: EntityPath) -> bool:
    """Whether an entity is known."""
    try:
        namespace.entity(path)
    except EntityNotFound:
        return False
    return True


class SubscribingLink(ReceivingLink):
    """A durable subscriber whose subscription is made first; then its attach is answered.

    Args:
        wanted: the subscription to make.
    """

    def __init__(
        self, client: Client, link: OutgoingLink, path: EntityPath, wanted: model.Subscription
    ) -> None:
        super().__init__(client, link, path)
        self._is_making = True
        self._is_gone = False
        link.owner = self
        client.links.spawn(link, self._make(wanted))

    async def _make(self, wanted: model.Subscription) -> None:
        namespace = self.client.namespace
        try:
            with suppress(EntityAlreadyExists):  # another bridge, or link, has made it meanwhile
                await namespace.administration.create(wanted)
            self._is_making = False
            if self._is_gone:
                return
            receiver = namespace.open_receiver(self.path, mode=self._mode, deliver=self.deliver)
        except ServiceBusError as error:
            refuse(self.client, self.link, str(self.path), error)
            self.client.links.forget(self)
        else:
            self.begin(receiver)
        self.client.flush_soon()

    @property
    def _mode(self) -> ReceiveMode:
        settled = self.link.wants_settled
        return ReceiveMode.RECEIVE_AND_DELETE if settled else ReceiveMode.PEEK_LOCK

    def refusal(self) -> ServiceBusError | None:
        """Return the error for receiving any longer; `None` while receiving is allowed."""
        return None if self._is_making else super().refusal()

    def on_detached(self) -> None:
        """Receive nothing more; the subscription stays, one under way is made."""
        self._is_gone = True
        super().on_detached()
