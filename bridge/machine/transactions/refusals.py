"""Refusals in transactions, in Azure's words where Azure has the error."""

from __future__ import annotations

from bridge.model.errors import (
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
)


def not_declared() -> ServiceBusError:
    """Return the refusal of an operation in a transaction that the connection does not have."""
    return TransactionUnknown(
        "Transaction hasn't been declared yet, or has already been discharged."
    )


def not_to_discharge() -> ServiceBusError:
    """Return the refusal of a discharge of a transaction that its link does not have."""
    return TransactionUnknown("Transaction is not declared.")


def _no_active(txn_id: bytes, timeout_ms: int) -> str:
    seconds = timeout_ms // 1000
    return (
        f"No active Transaction was found for ID '{shown(txn_id)}'. The Transaction may have timed "
        "out or attempted to span multiple top-level entities such as Queue or Topic. The server "
        f"Transaction timeout is: {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}."
    )


def late_operation(txn_id: bytes, timeout_ms: int) -> ServiceBusError:
    """Return the refusal of an operation in a transaction that has timed out."""
    return NotAllowed(_no_active(txn_id, timeout_ms))


def late_discharge(txn_id: bytes, timeout_ms: int) -> ServiceBusError:
    """Return the refusal of the commit of a transaction that has timed out."""
    return TransactionTimedOut(_no_active(txn_id, timeout_ms))


def several_entities() -> ServiceBusError:
    """Return the refusal of an operation on another entity than the pinned one."""
    return NotAllowed(
        "Local transactions cannot span multiple top-level entities such as queue or topic."
    )


def too_many_messages(most: int) -> ServiceBusError:
    """Return the refusal of a send beyond the most messages of a transaction."""
    return NotAllowed(f"Cannot send more than {most} messages in a single transaction.")


def too_large(size_bytes: int, most_bytes: int) -> ServiceBusError:
    """Return the refusal of an operation by which the commit would become too large."""
    return MessageSizeExceeded(
        f"The operations of the transaction would have {size_bytes} bytes together; RabbitMQ "
        f"stores {most_bytes} at most at once (max_message_size). Send fewer or smaller messages "
        "in a transaction."
    )


def too_much_held(most_bytes: int) -> ServiceBusError:
    """Return the refusal of an operation of one of too many, or too large, transactions."""
    return QuotaExceeded(
        f"The transactions of this connection hold more than {most_bytes} bytes together. "
        "Discharge some of them first."
    )


def too_much_held_together(most_bytes: int) -> ServiceBusError:
    """Return the refusal of an operation while the transactions of all clients are too large."""
    return QuotaExceeded(
        f"The transactions of all connections of the bridge hold {most_bytes} bytes together, and "
        "have room for no more. Try again when some are discharged."
    )


def too_many_transactions(most: int) -> ServiceBusError:
    """Return the refusal of a declare beyond the most transactions of a connection."""
    return QuotaExceeded(
        f"The connection has {most} transactions that are not discharged. Discharge some of them "
        "first."
    )


def not_in_basic() -> ServiceBusError:
    """Return the refusal of a declare in the Basic tier."""
    return NotAllowed("Transactions are not supported in the Basic tier of Service Bus.")


def rolled_back(reason: ServiceBusError) -> ServiceBusError:
    """Return the refusal of a commit, because of an earlier refusal or the store's."""
    if isinstance(reason, TransactionRolledBack):
        return reason
    return TransactionRolledBack(f"The transaction was rolled back: {reason}")


def ended() -> ServiceBusError:
    """Return the refusal of an operation whose transaction ended before it was checked."""
    return TransactionRolledBack("The transaction was rolled back before the operation.")


def shown(txn_id: bytes) -> str:
    """Return an id as texts show it."""
    return f"txn:{txn_id.hex()}"
