"""Three clients of one contract: the Azure SDK through the gateway, and both lanes of the library.

Each has the synchronous SDK's calls; those of the asynchronous lane run on a loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import azure.servicebus
import azure.servicebus.exceptions

import bridge.client
import bridge.client.aio
import bridge.client.exceptions

LANES = ("azure", "pika", "aio-pika")


class OnLoop:
    """An asynchronous object whose coroutines are waited for."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return self._wrapped(found)

        def call(*arguments: Any, **named: Any) -> Any:
            async def on_loop() -> Any:
                given = {key: _inner(each) for key, each in named.items()}
                result = found(*map(_inner, arguments), **given)
                if inspect.isasyncgen(result):
                    return [each async for each in result]
                return await result if inspect.isawaitable(result) else result

            return self._wrapped(self._wait(on_loop()))

        return call

    def __enter__(self) -> OnLoop:
        self._wait(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._wait(self._inner.__aexit__(*error))

    def __iter__(self) -> OnLoop:
        return self

    def __next__(self) -> Any:
        try:
            return self._wait(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)

    def _wrapped(self, result: Any) -> Any:
        is_ours = type(result).__module__.startswith("bridge.client.aio")
        return OnLoop(result, self._loop) if is_ours else result


def _inner(given: Any) -> Any:
    return given._inner if isinstance(given, OnLoop) else given


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A running loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()


@dataclass
class Lane:
    """A client and its words.

    Attributes:
        words: the module of messages and modes.
        errors: the module of exceptions.
    """

    name: str
    client: Any
    words: ModuleType
    errors: ModuleType
    renewer: Any

    def message(self, body: str, **properties: Any) -> Any:
        """Return a message to be sent."""
        return self.words.ServiceBusMessage(body, **properties)

    def send(self, queue: str, *bodies: str, **properties: Any) -> None:
        """Send messages one by one."""
        with self.client.get_queue_sender(queue) as sender:
            for body in bodies:
                sender.send_messages(self.message(body, **properties))


@contextmanager
def lane_of(name: str, bridge_process: Any, **options: Any) -> Iterator[Lane]:
    """One of the three, of a bridge; it does not retry unless it is told to."""
    options = {"retry_total": 0, **options}
    if name == "azure":
        made = azure.servicebus.ServiceBusClient.from_connection_string(
            bridge_process.connection_string, **options
        )
        errors = azure.servicebus.exceptions
        with made as client:
            yield Lane(name, client, azure.servicebus, errors, azure.servicebus.AutoLockRenewer)
        return
    url, errors = bridge_process.amqp_url, bridge.client.exceptions
    if name == "pika":
        with bridge.client.ServiceBusClient(url, **options) as client:
            yield Lane(name, client, bridge.client, errors, bridge.client.AutoLockRenewer)
        return
    with event_loop() as loop:
        client = OnLoop(bridge.client.aio.ServiceBusClient(url, **options), loop)
        with client:
            yield Lane(
                name,
                client,
                bridge.client,
                errors,
                lambda: OnLoop(bridge.client.aio.AutoLockRenewer(), loop),
            )
