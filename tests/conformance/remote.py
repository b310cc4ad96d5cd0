"""Clients of bridge.remote for tests: addresses on loopback, short patience, namespaces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import RemoteCredential, SharedKey
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import Patience
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.conformance.door import KEY, RULE_NAME

ROOT = SharedKey(RULE_NAME, KEY)

WAIT_S = 120.0

ONCE = Patience(total_s=0)
"""One attempt."""

QUICK = Patience(total_s=WAIT_S, wait_s=0.001, wait_max_s=0.002)
"""Attempts one after the other: pauses are other tests'."""


class Waits:
    """Keeps the waits that a patience asks for, and waits none of them: its clock goes on."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._passed_s = 0.0
        self.patience = Patience(total_s=WAIT_S, sleep=self, clock=self.clock)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._passed_s += seconds
        await asyncio.sleep(0)

    def clock(self) -> float:
        """Return the time in seconds, as if all that was asked for had been waited."""
        return time.monotonic() + self._passed_s


def plain_address(port: int, **options: Any) -> RemoteAddress:
    """Return the address of a server without TLS."""
    text = f"Endpoint=sb://localhost:{port};UseDevelopmentEmulator=true"
    return RemoteAddress.of(text, **options)


def tls_address(port: int, ca_file: Path | None, **options: Any) -> RemoteAddress:
    """Return the address of a server with TLS, whose namespace has Azure's name."""
    return RemoteAddress.of(
        "Endpoint=sb://one.servicebus.windows.net",
        custom_endpoint_address=f"sb://localhost:{port}",
        ca_file=ca_file,
        **options,
    )


@asynccontextmanager
async def remote(
    address: RemoteAddress | int, credential: RemoteCredential = ROOT, **options: Any
) -> AsyncIterator[RemoteNamespace]:
    """Open a namespace; a number is the port of a server without TLS."""
    where = plain_address(address) if isinstance(address, int) else address
    async with RemoteNamespace(where, credential, **options) as namespace:
        yield namespace


def text(body: str, session_id: str | None = None) -> RemoteMessage:
    """Return a message of a session or of none."""
    properties = None if session_id is None else MessageProperties(group_id=session_id)
    return RemoteMessage.of(data=body.encode(), properties=properties)


def texts(count: int) -> list[RemoteMessage]:
    """Return messages "0", "1" ..."""
    return [text(str(number)) for number in range(count)]
