"""Who sends into the source of a relay, and who receives and completes at its target, meanwhile.

What the consumer sees again though its completion was answered is counted apart: RabbitMQ confirms
no acks, so a kill of it, or of the bridge that has just written one, may undo the last of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.fixtures.waiting import until

BATCH = 10
PAUSE_S = 0.2
WAIT_S = 1.0


class RelayConsumer:
    """A sender and a consumer of one queue, on both sides of a relay.

    Attributes:
        accepted: what the source has taken for sure.
        numbers: the sequence numbers at the target under which each message was received.
        again: what was received again after its completion was answered, and how often.
    """

    def __init__(self, source: RemoteNamespace, target: RemoteNamespace, queue: str) -> None:
        self.accepted: set[str] = set()
        self.numbers: defaultdict[str, set[int]] = defaultdict(set)
        self.again: Counter[str] = Counter()
        self._completed: set[str] = set()
        self._source = source
        self._target = target
        self._queue = queue
        self._is_sending = True
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Send and receive from now on."""
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]

    async def finish(self, within_s: float) -> None:
        """Send no more, and wait until all has come that was accepted.

        A completion whose answer a kill took may have been carried out: the message then never
        comes again. Whether all are settled is seen where the queue is empty.
        """
        self._is_sending = False
        await self._tasks[0]
        await until(lambda: self.accepted <= self.numbers.keys(), within_s=within_s)

    async def stop(self) -> None:
        """Receive no more; raises what has ended the sending or the receiving."""
        for each in self._tasks:
            each.cancel()
        found = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise error

    async def _send(self) -> None:
        """Send batch after batch, each with names of its own: one in doubt is not sent again."""
        number = 0
        while self._is_sending:
            names = [f"consumed-{number + each}" for each in range(BATCH)]
            number += BATCH
            batch = [
                RemoteMessage.of(data=each.encode(), properties=MessageProperties(message_id=each))
                for each in names
            ]
            try:
                sender = await self._source.sender(self._queue)
                await sender.send(batch)
                self.accepted.update(names)
                await sender.close()
            except RemoteError:
                pass
            await asyncio.sleep(PAUSE_S)

    async def _receive(self) -> None:
        while True:
            try:
                receiver = await self._target.receiver(self._queue)
                try:
                    while True:
                        for each in await receiver.receive(50, WAIT_S):
                            name = str(each.message.message_id)
                            self.numbers[name].add(int(each.message.sequence_number or 0))
                            self.again[name] += name in self._completed
                            await receiver.settle(each, Complete())
                            self._completed.add(name)
                finally:
                    await receiver.close()
            except RemoteError:
                await asyncio.sleep(PAUSE_S)

    def judge(self, *, may_come_again: bool) -> str:
        """Check what was received; return how much of it came again, in words."""
        lost = self.accepted - self.numbers.keys()
        assert not lost, f"lost: {sorted(lost)[:10]}"
        twice = {name: found for name, found in self.numbers.items() if len(found) > 1}
        assert not twice, f"numbered twice: {list(twice.items())[:10]}"
        again = +self.again
        assert may_come_again or not again, f"completed, and received again: {list(again)[:10]}"
        return f"{len(again)} of {len(self._completed)} answered completions came back"
