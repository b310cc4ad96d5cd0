"""What senders are told of each message, against what is stored in the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from tests.acceptance.sdk import client_of

UNKNOWN = (ServiceBusConnectionError, OperationTimeoutError)
"""What the SDK raises when a message may be stored, or not."""


class Told:
    """The messages of many senders, by what the sender was told."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.errors: list[Exception] = []
        self._is_over = threading.Event()

    def send_for_ever(self, bridge: Any, name: str) -> None:
        """Send one message after the other until the end, without retries."""
        with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
            number = 0
            while not self._is_over.is_set():
                number += 1
                body = f"{name}-{number}"
                try:
                    sender.send_messages(ServiceBusMessage(body))
                except UNKNOWN:
                    self.unknown.add(body)
                except ServiceBusError as error:
                    self.errors.append(error)
                    self.refused.add(body)
                    self._is_over.wait(0.05)
                else:
                    self.accepted.add(body)

    @contextlib.contextmanager
    def senders(self, bridge: Any, count: int) -> Iterator[None]:
        """Have so many senders at work."""
        names = [f"sender {number}" for number in range(count)]
        threads = [threading.Thread(target=self.send_for_ever, args=(bridge, n)) for n in names]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def check(self, take_all: Callable[[], set[str]]) -> None:
        """Nothing that was told refused is stored, and all that was told accepted."""
        stored = take_all()
        assert not self.refused & stored, f"told refused, yet stored: {self.refused & stored}"
        assert self.accepted <= stored, f"told accepted, not stored: {self.accepted - stored}"
        assert stored <= self.accepted | self.unknown


def take_all(bridge: Any) -> set[str]:
    """Receive and complete all messages; return their bodies."""
    found: set[str] = set()
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        while messages := receiver.receive_messages(100, max_wait_time=5):
            for message in messages:
                assert str(message) not in found, f"twice: {message}"
                found.add(str(message))
                receiver.complete_message(message)
    return found
