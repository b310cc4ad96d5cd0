"""A client that does transaction after transaction, in a process that may be killed.

    python -m tests.crash.transaction_worker CONNECTION_STRING PORT NAME SOURCE SESSION

Prints an event a line before it goes on. It stops at the end of its standard input.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from typing import Any

from proton import Delivery, Described, Message, ProtonException, symbol, ulong
from proton import Timeout as ProtonTimeout
from proton.reactor import Filter
from proton.utils import BlockingReceiver, BlockingSender

from tests.acceptance.proton_transactions import ProtonClient, ProtonTransaction
from tests.crash.load import now_ms
from tests.crash.transaction_events import (
    CommitAsked,
    SentIn,
    TakenIn,
    TransactionEnded,
    TransactionEvent,
    to_line,
)

PLACES = ("one", "two", "sessions")
"""What is sent to."""

SESSION_IDS = ("s0", "s1")

RECEIVES_S = 1.0
PAUSE_S = 0.1

OUTCOMES: dict[str, tuple[int, list[Any]]] = {
    "complete": (0x24, []),
    "dead-letter": (0x25, []),
    "abandon": (0x27, [True]),
    "defer": (0x27, [True, True]),
}
"""Outcome -> the descriptor and the fields of its state."""

WEIGHTS = {"complete": 12, "dead-letter": 2, "abandon": 1, "defer": 1}

TAKES = (1, 1, 1, 2, 0)
"""How many messages a transaction takes, by chance; without one it only sends."""


class Work:
    """What one client does on one connection after the other.

    Args:
        session_id: of the session that it receives; none when the source has no sessions.
    """

    def __init__(self, place: tuple[str, int], name: str, source: str, session_id: str) -> None:
        self.is_stopped = threading.Event()
        self._place = place
        self._name = name
        self._source = source
        self._session_id = session_id
        self._chance = random.Random(name)
        self._counts = itertools.count()

    def go_on(self) -> None:
        """Work until it is stopped; connect again whenever a connection is lost."""
        while not self.is_stopped.is_set():
            try:
                client = ProtonClient(*self._place)
            except ProtonException as lost:
                self._note(lost)
                continue
            try:
                self._connected(client)
            except ProtonException as lost:
                self._note(lost)
            finally:
                close(client)

    def _connected(self, client: ProtonClient) -> None:
        transaction = client.transaction()  # its coordinator is the first link: sends go anywhere
        receiver = self._receiver(client)
        senders = {place: client.sender(place) for place in PLACES}
        while not self.is_stopped.is_set():
            self._transact(client, transaction, receiver, senders)
            time.sleep(PAUSE_S)
            transaction = client.transaction()

    def _receiver(self, client: ProtonClient) -> BlockingReceiver:
        options = None
        if self._session_id:
            options = Filter({symbol("com.microsoft:session-filter"): self._session_id})
        return client.connection.create_receiver(self._source, credit=1, options=options)

    def _transact(
        self,
        client: ProtonClient,
        transaction: ProtonTransaction,
        receiver: BlockingReceiver,
        senders: dict[str, BlockingSender],
    ) -> None:
        name = f"{self._name}-{next(self._counts)}"
        for _ in range(self._chance.choice(TAKES)):
            self._take(name, transaction, receiver)
        targets = [self._chance.choice(PLACES) for _ in range(self._chance.randint(1, 3))]
        deliveries = []
        for at, target in enumerate(targets):
            identity = f"{name}.{at}"
            say(SentIn(name, identity, target))
            message = Message(inferred=True, body=identity.encode(), id=os.urandom(8).hex())
            if target == "sessions":
                message.group_id = self._chance.choice(SESSION_IDS)
            deliveries.append(transaction.own.send(senders[target].link, message))
        if self._chance.random() < 0.5:
            client.wait(lambda: all(each.remote_state for each in deliveries))
        is_commit = self._chance.random() < 0.8
        if is_commit:
            say(CommitAsked(name))
        told = transaction.commit() if is_commit else transaction.abort()
        say(TransactionEnded(name, told == "committed", told, now_ms()))

    def _take(self, name: str, transaction: ProtonTransaction, receiver: BlockingReceiver) -> None:
        try:
            message = receiver.receive(timeout=RECEIVES_S)
        except ProtonTimeout:
            return
        outcome = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        delivery: Delivery = receiver.fetcher.unsettled.pop()
        body = bytes(message.body).decode()
        say(TakenIn(name, body, self._source, outcome, now_ms()))
        descriptor, fields = OUTCOMES[outcome]
        state: list[Any] = [transaction.own.id, Described(ulong(descriptor), fields)]
        delivery.local.data = state
        delivery.update(0x34)

    def _note(self, lost: ProtonException) -> None:
        print(f"{self._name}: {lost}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_S)


def say(event: TransactionEvent) -> None:
    """Print an event."""
    print(to_line(event), flush=True)


def close(client: ProtonClient) -> None:
    """Close a connection that may be lost."""
    try:
        client.close()
    except ProtonException as lost:
        print(lost, file=sys.stderr)


def main(connection_string: str, port: int, name: str, source: str, session_id: str) -> None:
    """Work until the standard input ends."""
    work = Work((connection_string, port), name, source, session_id)

    def read() -> None:
        sys.stdin.read()
        work.is_stopped.set()

    threading.Thread(target=read, daemon=True).start()
    work.go_on()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
