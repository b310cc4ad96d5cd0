"""Proton's transactional client, step by step.

python -m tests.acceptance.proton_transactions CONNECTION_STRING PORT QUEUE
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from proton import Delivery, Message
from proton.handlers import TransactionHandler
from proton.reactor import Container, Transaction
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

PATIENCE_S = 120


class ProtonTransaction(TransactionHandler):
    """A transaction, from its declare to its end."""

    def __init__(self, client: ProtonClient) -> None:
        self.ends: list[str] = []
        self._client = client
        self.own: Transaction = client.connection.container.declare_transaction(
            client.connection.conn, self
        )
        self._is_declared = False
        client.wait(lambda: self._is_declared or self.ends)

    def on_transaction_declared(self, event: Any) -> None:
        """Note the id."""
        self._is_declared = True

    def on_transaction_declare_failed(self, event: Any) -> None:
        """Note the refusal."""
        self.ends.append("not declared")

    def on_transaction_committed(self, event: Any) -> None:
        """Note the end."""
        self.ends.append("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        """Note the end."""
        self.ends.append("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        """Note the end, and why."""
        condition = event.delivery.remote.condition
        self.ends.append(f"{condition.name}: {condition.description}")

    def send(self, sender: BlockingSender, body: str) -> Delivery:
        """Send a message; do not wait for its outcome."""
        return self.own.send(
            sender.link, Message(inferred=True, body=body.encode(), id=os.urandom(8).hex())
        )

    def accept(self, receiver: BlockingReceiver) -> str:
        """Receive a message, and accept it; return its body."""
        message = receiver.receive()
        self.own.accept(receiver.fetcher.unsettled.pop())
        return bytes(message.body).decode()

    def commit(self) -> str:
        """Ask for the commit; return what became of it."""
        self.own.commit()
        return self._end()

    def abort(self) -> str:
        """Ask for a rollback; return what became of it."""
        self.own.abort()
        return self._end()

    def _end(self) -> str:
        self._client.wait(lambda: self.ends)
        return self.ends[0]


class ProtonClient:
    """A connection of Proton's blocking client.

    Args:
        client_id: the id of its container; by default it is random.
    """

    def __init__(self, connection_string: str, port: int, client_id: str = "") -> None:
        container = Container()
        if client_id:
            container.container_id = client_id
        keys = r"SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)"
        found = re.search(keys, connection_string)
        assert found is not None
        name, key = (quote(each, safe="") for each in found.groups())
        self.connection = BlockingConnection(
            f"amqp://{name}:{key}@127.0.0.1:{port}",
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            timeout=PATIENCE_S,
            container=container,
        )

    def wait(self, holds: Callable[[], Any]) -> None:
        """Wait until something holds."""
        self.connection.wait(holds)

    def transaction(self) -> ProtonTransaction:
        """Declare a transaction."""
        return ProtonTransaction(self)

    def sender(self, queue: str) -> BlockingSender:
        """Attach a sender."""
        return self.connection.create_sender(queue)

    def receiver(self, queue: str, credit: int = 1) -> BlockingReceiver:
        """Attach a receiver."""
        return self.connection.create_receiver(queue, credit=credit)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def main(connection_string: str, port: int, queue: str) -> None:
    """Receive and send in a transaction, say so, and wait to be killed."""
    client = ProtonClient(connection_string, port)
    receiver, sender = client.receiver(queue), client.sender(queue)
    transaction = client.transaction()
    transaction.accept(receiver)
    delivery = transaction.send(sender, "never")
    client.wait(lambda: delivery.remote_state)
    print("ready", flush=True)
    client.wait(lambda: False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
