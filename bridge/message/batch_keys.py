"""What the messages of one batch have in common where the entity is partitioned.

A batch is stored by one partition as a whole, so its messages have one session id, or one partition
key, and where duplicates are detected one message id (Azure's troubleshooting guide of its .NET
client, "Cannot send batch with multiple partition keys"; azure-sdk-for-python issue 21955;
azure-service-bus issue 103). Messages without a key are alike.
"""

from __future__ import annotations

from bridge.message.envelopes import Outgoing
from bridge.model.entity import SendEntity
from bridge.model.errors import NotAllowed
from bridge.model.session_id import fold
from bridge.wire import headers
from bridge.wire.basic import bytes_in

Keys = tuple[str | None, bytes | None, str | None]
"""Session id, folded; partition key, of a message without one; message id."""


class BatchKeys:
    """The keys of the first message of a batch, with which all others are compared."""

    def __init__(self, entity: SendEntity) -> None:
        self._is_partitioned = entity.enable_partitioning
        self._detects = entity.requires_duplicate_detection
        self._first: Keys | None = None

    def check(self, outgoing: Outgoing) -> None:
        """Check the next message of the batch.

        Raises:
            NotAllowed: the entity is partitioned, and a key differs from the first message's.
        """
        if not self._is_partitioned:
            return
        keys = self._keys(outgoing)
        if self._first is None:
            self._first = keys
        if keys == self._first:
            return
        if self._detects:
            raise NotAllowed(
                "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is "
                "not supported for an entity with partitioning and duplicate detection enabled."
            )
        raise NotAllowed(
            "Batching brokered messages with distinct SessionId or PartitionKey is not supported "
            "for an entity with partitioning enabled."
        )

    def _keys(self, outgoing: Outgoing) -> Keys:
        properties = outgoing.record.properties
        message_id = properties.message_id if self._detects else None
        if outgoing.session_id:
            # A partition key beside it equals it.
            return fold(outgoing.session_id), None, message_id
        return None, bytes_in(properties.headers or {}, headers.PARTITION_KEY), message_id
