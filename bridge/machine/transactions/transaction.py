"""One transaction, from its declare to its end."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bridge.machine.transactions.operations import TransactedOperation
from bridge.model.errors import ServiceBusError


class Transaction:
    """A transaction of a connection.

    Attributes:
        coordinator: the link that declared it, which alone discharges it.
        entity: the key of the pinned queue or topic; "" before the first operation.
        ends_ms: when it is rolled back; `None` before the first operation.
        operations: its operations in the order in which they came, checked or not.
        pending: those that are not checked yet.
        doom: why it cannot be committed any more; `None` while it can.
        discharger: who asked for its commit.
        is_asked: its commit is asked for: nothing rolls it back any more but a refusal.
        is_over: it was rolled back; after a timeout it stays known until it is discharged.
    """

    def __init__(self, txn_id: bytes, coordinator: Hashable) -> None:
        self.id = txn_id
        self.coordinator = coordinator
        self.entity = ""
        self.ends_ms: int | None = None
        self.operations: list[TransactedOperation] = []
        self.pending: set[TransactedOperation] = set()
        self.message_count = 0
        self.size_bytes = 0
        self.doom: ServiceBusError | None = None
        self.discharger: Any = None
        self.is_discharged = False
        self.is_asked = False
        self.is_over = False

    def __repr__(self) -> str:
        state = "over" if self.is_over else "asked" if self.is_asked else "open"
        return f"<Transaction {self.id.hex()} {state} operations={len(self.operations)}>"

    def fail(self, error: ServiceBusError) -> None:
        """Keep the transaction from being committed; the first error is its reason."""
        if self.doom is None and not self.is_over:
            self.doom = error
