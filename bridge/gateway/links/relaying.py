"""A link on which a relay sends copies of another namespace's messages: each is numbered once.

Its attach names the source of all its messages (`wire.relay_source`). Whoever may say that a
message came before, or will not come, can make others' messages vanish: so it needs the right
Manage, and says so of the one source alone. All bridges of the namespace must know what it asks
for: each may be the next leader of its entity.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gateway.client import texts
from bridge.gateway.client.client import Client
from bridge.gateway.links.sending import MESSAGE_ID_BYTES, SendingLink
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.link import IncomingLink
from bridge.message.envelopes import Outgoing, RelayedCopy
from bridge.model.entity import Right
from bridge.model.errors import InvalidField, NotImplementedHere
from bridge.model.name import EntityPath, parse_path, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import relay_source
from bridge.wire.amqp10.message import batch_messages
from bridge.wire.amqp10.performatives import TransactionalState
from bridge.wire.link_properties import RELAY_SOURCE, RELAY_SUBSCRIPTION
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.relayed import without_source

ANNOTATIONS_BYTES = 512
"""Room for the annotations beside the largest message: more than they need."""


def source_of(properties: Mapping[Any, Any] | None) -> str | None:
    """Return the source that an attach names; `None` for none.

    Raises:
        InvalidField: it is no name of a source.
    """
    found = (properties or {}).get(RELAY_SOURCE)
    if found is None:
        return None
    if not isinstance(found, str) or not 1 <= len(found) <= relay_source.SOURCE_CHARACTERS_MAX:
        raise InvalidField(texts.NO_SOURCE.format(most=relay_source.SOURCE_CHARACTERS_MAX))
    return found


def refuse_without_source(properties: Mapping[Any, Any] | None) -> None:
    """Refuse an attach that names a subscription and no source: all would get the messages.

    Raises:
        InvalidField: it does.
    """
    if (properties or {}).get(RELAY_SUBSCRIPTION) is not None:
        raise InvalidField(texts.NO_RELAY_SUBSCRIPTION)


def subscription_of(client: Client, path: EntityPath, properties: Mapping[Any, Any] | None) -> str:
    """Return the only subscription that an attach names; "" for none.

    Raises:
        InvalidField: it is no name.
        EntityNotFound: the topic has no such subscription.
    """
    found = (properties or {}).get(RELAY_SUBSCRIPTION)
    if found is None:
        return ""
    if not isinstance(found, str) or not found or "/" in found:
        raise InvalidField(texts.NO_RELAY_SUBSCRIPTION)
    client.namespace.check_known(RELAY_SUBSCRIPTION)
    client.namespace.receive_entity(parse_path(f"{path.entity}/Subscriptions/{found}"))
    return found


class RelayingLink(SendingLink):
    """A relay's sender.

    Args:
        source: the name of the messages' source.
        subscription: the name of the only subscription that gets them; "" for all.
    """

    right = Right.MANAGE

    def __init__(
        self,
        client: Client,
        link: IncomingLink,
        path: EntityPath,
        message_bytes_max: int,
        source: str,
        subscription: str = "",
    ) -> None:
        self._source = relay_source.digest_of(source)
        self._only = None
        said = {RELAY_SOURCE: source}
        if subscription:
            self._only = parse_path(f"{path.entity}/Subscriptions/{subscription}")
            said[RELAY_SUBSCRIPTION] = subscription
        self._told: dict[int, tuple[int, int]] = {}
        super().__init__(
            client,
            link,
            path,
            message_bytes_max + ANNOTATIONS_BYTES,
            (self._copy, self._copies),
            said,
        )

    def _operate(self, event: MessageArrived, state: TransactionalState) -> None:
        refused = NotImplementedHere(texts.NO_TRANSACTION_OF_COPIES)
        if self.client.transactions is not None:
            self.client.transactions.doom(state.txn_id, refused)
        self.done(event, self.rejected(refused))

    def _copy(self, raw: bytes) -> Outgoing:
        """Return one encoded message in the engine's form.

        Raises:
            MappingError, ServiceBusError: the message is refused; also one of which the relay has
                said that it cannot come again.
        """
        self.client.namespace.check_known(RELAY_SOURCE)
        bare, said = without_source(raw, self._source)
        _, number, at_ms, lowest = relay_source.read(said)
        partition = number >> relay_source.PARTITION_BITS
        told, told_ms = self._told.get(partition, (0, 0))
        if number < told and at_ms <= told_ms:
            raise InvalidField(texts.BELOW_LOWEST.format(number=number, lowest=told))
        # What is below and newer is of a source that was made anew.
        self._told[partition] = max(lowest, told if number >= told else 0), max(at_ms, told_ms)
        inward = record_from_message(bare, new_message_id=os.urandom(MESSAGE_ID_BYTES).hex())
        if inward.scheduled_ms is not None and self._only is not None:
            raise InvalidField(texts.TIMED_FOR_ONE)
        return RelayedCopy(
            record=inward.record,
            size_bytes=len(bare),
            scheduled_ms=inward.scheduled_ms,
            session_id=inward.session_id,
            said=said,
            target=self._target(),
        )

    def _target(self) -> bytes:
        """Return the short id of the only subscription; EntityNotFound: it is gone."""
        if self._only is None:
            return b""
        self.client.namespace.check_known(RELAY_SUBSCRIPTION)
        return short_id(incarnation_of(self.client.namespace.receive_entity(self._only)))

    def _copies(self, payload: bytes) -> Iterator[Outgoing]:
        return map(self._copy, batch_messages(payload))
