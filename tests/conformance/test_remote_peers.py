"""The remote client with servers of others: Apache Qpid Proton and rhea."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from bridge.remote.errors import RemoteNotFound
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Release
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.conformance.remote import WAIT_S, remote, text, texts
from tests.conformance.test_rhea import FOLDER

HERE = Path(__file__).parent


class ProtonServer(MessagingHandler):  # type: ignore[misc]
    """One queue, and `$cbs`.

    Attributes:
        outcomes: what clients have done with their messages.
    """

    def __init__(self, port: int) -> None:
        super().__init__(auto_accept=True, auto_settle=True)
        self.outcomes: list[str] = []
        self._port = port
        self._messages: deque[bytes] = deque()
        self._senders: list[Any] = []
        self._number = 0
        self.ready = threading.Event()
        self.container = Container(self)

    def on_start(self, event: Any) -> None:
        """Listen."""
        self._acceptor = event.container.listen(f"127.0.0.1:{self._port}")
        self._stop = EventInjector()
        event.container.selectable(self._stop)
        self.ready.set()

    def stop(self) -> None:
        """End, from another thread."""
        self._stop.trigger(ApplicationEvent("stopping"))

    def on_stopping(self, event: Any) -> None:
        """End."""
        self.container.stop()

    def on_link_opening(self, event: Any) -> None:
        """Take every link."""
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_sender:
            self._senders.append(link)

    def on_message(self, event: Any) -> None:
        """Keep a message, or answer a request."""
        if event.receiver.remote_target.address != "$cbs":
            self._messages.append(event.message.encode())
            self._pump()
            return
        (sender,) = [
            each for each in self._senders if each.remote_target.address == event.message.reply_to
        ]
        properties = {"status-code": proton.int32(202), "status-description": "Accepted"}
        sender.send(
            proton.Message(correlation_id=event.message.id, properties=properties, body=None)
        )

    def _pump(self) -> None:
        for sender in self._senders:
            if sender.source.address != "q":
                continue
            while self._messages and sender.credit > 0:
                self._number += 1
                delivery = sender.delivery(f"{self._number:016d}")
                sender.stream(self._messages.popleft())
                sender.advance()
                assert delivery is not None
            if sender.drain_mode:
                sender.drained()

    def on_link_flow(self, event: Any) -> None:
        """Send within the credit, and give back the rest when that is asked for."""
        if event.link.is_sender:
            self._pump()

    def _note(self, event: Any, outcome: str) -> None:
        if event.link.source.address == "q":
            self.outcomes.append(outcome)

    def on_accepted(self, event: Any) -> None:
        """Note the outcome."""
        self._note(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        """Note the outcome."""
        self._note(event, "rejected")

    def on_released(self, event: Any) -> None:
        """Note the outcome: proton's word for modified, too."""
        self._note(event, "released")


@contextmanager
def proton_server() -> Iterator[tuple[ProtonServer, int]]:
    """Run proton's server in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ProtonServer(port)
    thread = threading.Thread(target=server.container.run, daemon=True)
    thread.start()
    assert server.ready.wait(WAIT_S)
    try:
        yield server, port
    finally:
        server.stop()
        thread.join(WAIT_S)


async def test_proton() -> None:
    """It logs the client in, takes single messages of many frames, gives them, and settles them."""
    large = RemoteMessage.of(
        data=bytes(range(256)) * 9_000,
        properties=MessageProperties(message_id="large"),
        application_properties={"n": 2**40},
    )
    with proton_server() as (server, port):
        async with remote(port) as namespace:
            sender = await namespace.sender("q")
            for each in [*texts(4), large]:
                await sender.send([each])
            receiver = await namespace.receiver("q")
            found: list[Any] = []
            while len(found) < 5:
                found += await receiver.receive(10, WAIT_S)
            assert [each.message.data for each in found[:4]] == [b"0", b"1", b"2", b"3"]
            assert found[4].message.data == large.data
            assert found[4].message.application_property_values["n"] == 2**40
            assert found[0].delivery_tag == b"0000000000000001"
            await receiver.settle(found[0], Complete())
            await receiver.settle(found[1], Abandon())
            await receiver.settle(found[2], DeadLetter("r", "d"))
            await receiver.settle_all(found[3:], Complete())
            assert await receiver.receive(1, 0.1) == []
    assert sorted(server.outcomes) == ["accepted"] * 3 + ["rejected", "released"]


@asynccontextmanager
async def rhea_server() -> AsyncIterator[tuple[int, dict[str, int]]]:
    """Run rhea's server in a process; what clients did is in the dictionary at the end."""
    node = shutil.which("node")
    assert node is not None, "Node is missing (make setup)"
    process = await asyncio.create_subprocess_exec(
        node,
        str(HERE / "rhea_server.cjs"),
        cwd=FOLDER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counts: dict[str, int] = {}
    async with asyncio.timeout(WAIT_S):
        port = int(await process.stdout.readline())
    try:
        yield port, counts
    finally:
        process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            counts |= json.loads(await process.stdout.readline())
            await process.wait()


async def test_rhea() -> None:
    """It does, too; its handles and channels are its own."""
    async with rhea_server() as (port, counts), remote(port) as namespace:
        sender, other = await namespace.sender("q"), await namespace.sender("q")
        for each in texts(3):
            await sender.send([each])
        await other.send([text("x" * 20_000)])
        receiver = await namespace.receiver("q")
        found: list[Any] = []
        while len(found) < 4:
            found += await receiver.receive(10, WAIT_S)
        assert len(found[3].message.data) == 20_000
        await receiver.settle(found[0], Complete())
        await receiver.settle(found[1], DeadLetter())
        await receiver.settle(found[2], Release())
        (again,) = await receiver.receive(1, WAIT_S)
        assert again.message.body_values == ["again"]
        await receiver.settle_all([found[3], again], Complete())
        with pytest.raises(RemoteNotFound, match="no such queue"):
            await namespace.sender("nope")
    assert counts == {"accepted": 3, "released": 1, "rejected": 1, "modified": 0}
