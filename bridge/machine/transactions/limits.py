"""Limits of transactions: Azure's, and those of a connection's memory."""

from __future__ import annotations

from typing import Final

TIMEOUT_MS: Final = 120_000
"""The longest time from the first operation to the discharge (Azure, transactions)."""

MESSAGES_MAX: Final = 100
"""Messages that are sent in one transaction at most, each of a batch counted (Azure, quotas)."""

OPEN_MAX: Final = 1_000
"""Transactions of one connection that are not discharged."""

HELD_BYTES_MAX: Final = 67_108_864
"""Bytes of all operations of one connection that wait for their discharge."""

ALL_HELD_BYTES_MAX: Final = 268_435_456
"""The same of all connections together."""

OPERATION_BYTES: Final = 256
"""What an operation takes beside its content, in memory and in the commit."""
