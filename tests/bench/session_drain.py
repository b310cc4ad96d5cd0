"""One bridge's engine in a process of its own that drains sessions; see `session_shards`.

    python -m tests.bench.session_drain URL MANAGEMENT_URL COUNT_OF_EACH

Prints a line (JSON) when it is ready, and reads one before it begins; another when no session has
come for a while: how many messages, when the first and the last came (UTC s), processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import partial

from bridge.broker.connection.endpoint import parse_url
from bridge.broker.management.api import Management
from bridge.engine.api import Complete, Received, ReceiveMode
from bridge.engine.namespace import RabbitNamespace
from bridge.model import entity as model
from bridge.model.errors import OperationTimeout, ServiceBusError
from bridge.model.name import EntityPath
from tests.bench.session_bridge import QUEUE, SHARDS

PATH = EntityPath(QUEUE.name)
RECEIVERS = 16
CREDIT = 20
IDLE_S = 2.0


class Drain:
    """What has been received here."""

    def __init__(self, namespace: RabbitNamespace, of_each: int) -> None:
        self.count = 0
        self.first_s = self.last_s = 0.0
        self._namespace = namespace
        self._of_each = of_each

    async def receive(self) -> None:
        """Drain one session after the other."""
        while True:
            arrived: asyncio.Queue[Received] = asyncio.Queue()
            try:
                receiver = await self._namespace.accept_session(
                    PATH,
                    None,
                    mode=ReceiveMode.PEEK_LOCK,
                    deliver=arrived.put_nowait,
                    on_lost=lambda error: None,
                    timeout_s=IDLE_S,
                )
            except OperationTimeout:
                return
            receiver.add_credit(CREDIT)
            settling: list[asyncio.Future[None]] = []
            for _ in range(self._of_each):
                received = await arrived.get()
                await asyncio.sleep(0)  # as who is not in this process: others have their turn
                receiver.add_credit(1)
                self._settle(received, settling)
            await asyncio.gather(*settling)
            await receiver.close()

    def _settle(self, received: Received, settling: list[asyncio.Future[None]]) -> None:
        self.last_s = time.time()
        self.first_s = self.first_s or self.last_s
        token = received.lock_token
        assert token is not None
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        settling.append(settled)
        done = partial(self._settled, settled)
        self._namespace.begin_settling(PATH, token, Complete(), done)

    def _settled(self, settled: asyncio.Future[None], error: ServiceBusError | None) -> None:
        assert error is None
        self.count += 1
        settled.set_result(None)


async def main(url: str, management_url: str, of_each: str) -> None:
    """Drain, and say so."""
    endpoint = parse_url(url)
    async with Management(endpoint, management_url) as management:
        namespace = RabbitNamespace(endpoint, management, session_shards=SHARDS)
        await namespace.start()
        await namespace.apply(model.Namespace(queues=(QUEUE,)))
        held = await namespace.accept_session(
            PATH,
            f"nobody's {os.getpid()}",
            mode=ReceiveMode.PEEK_LOCK,
            deliver=lambda received: None,
            on_lost=lambda error: None,
            timeout_s=120,
        )
        await namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=1)
        await held.close()
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        drain = Drain(namespace, int(of_each))
        await asyncio.gather(*(drain.receive() for _ in range(RECEIVERS)))
        await asyncio.sleep(0.5)
        line = {"count": drain.count, "first_s": drain.first_s, "last_s": drain.last_s}
        print(json.dumps(line | {"processor_s": time.process_time()}), flush=True)
        await namespace.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
