"""A sender of either lane: the checked arguments, and the sender's calls."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from uuid import uuid4

from bridge.client.batch import ServiceBusMessageBatch, all_encoded
from bridge.client.core.call import Call, numbers_of
from bridge.client.core.options import SenderOptions, check_names
from bridge.client.encoding import milliseconds
from bridge.client.exceptions import ServiceBusError
from bridge.client.messages import Sendable
from bridge.model.name import SubQueue

_SUB_QUEUE = f"/{SubQueue.DEAD_LETTER.value}"


class ClientSending:
    """The state and calls of one sender.

    Attributes:
        is_closed: no more calls are made.
        identifier: the sender's name in logs.
    """

    def __init__(self, entity_name: str, options: SenderOptions) -> None:
        check_names(options, SenderOptions, "A sender")
        self._entity_name = entity_name
        self.is_closed = False
        self.identifier = options.get("client_identifier") or f"SBSender-{uuid4()}"

    def limit(self) -> Call[int]:
        """Ask for the entity's maximum message size; this also checks that the entity exists."""
        self._check()
        return Call("message_bytes_max", (self._entity_name,))

    def send(
        self, message: Sendable | ServiceBusMessageBatch | Iterable[Sendable], timeout: float | None
    ) -> Call[None]:
        """Send messages."""
        self._check()
        return Call("send", (self._entity_name, all_encoded(message)), timeout)

    def schedule(
        self, messages: Sendable | Iterable[Sendable], due: datetime, timeout: float | None
    ) -> Call[list[int]]:
        """Send messages for later; each gets the due time, as with the SDK."""
        self._check()
        asked = self._entity_name, all_encoded(messages, due), milliseconds(due)
        return Call("schedule", asked, timeout, read=list)

    def cancel(self, sequence_numbers: int | Iterable[int], timeout: float | None) -> Call[None]:
        """Cancel scheduled messages."""
        self._check()
        asked = self._entity_name, numbers_of(sequence_numbers)
        return Call("cancel", asked, timeout, read=lambda found: None)

    def batch(self, wanted_bytes: int | None) -> Call[ServiceBusMessageBatch]:
        """Make an empty batch, limited to the entity's maximum message size."""
        self._check()
        made = partial(_batch, wanted_bytes)
        return Call("message_bytes_max", (self._entity_name,), read=made)

    def _check(self) -> None:
        if self.is_closed:
            raise ValueError("The handler has already been shutdown. Make another one.")
        if self._entity_name.lower().endswith(_SUB_QUEUE):
            raise ServiceBusError(
                f"Messages are sent to a queue or topic; '{self._entity_name}' is a sub-queue."
            )


def _batch(wanted_bytes: int | None, most_bytes: int) -> ServiceBusMessageBatch:
    if wanted_bytes is not None and wanted_bytes > most_bytes:
        raise ValueError(
            f"Max message size should be less than {most_bytes} bytes, not {wanted_bytes}."
        )
    return ServiceBusMessageBatch(wanted_bytes or most_bytes)
