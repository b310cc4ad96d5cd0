"""The works of `busbridge bench` that plain pika does on RabbitMQ, as a peer to compare with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.bench_load import COME_S, MORE_S, BenchLoad
from bridge.operations.measurement import MessageAccount, RoundLimit

if TYPE_CHECKING:
    from bridge.broker.plain_pika import PlainPika

PEER: Final = "plain pika"


class PikaBench:
    """The works on a quorum queue, with publisher confirms.

    RabbitMQ has no batches, schedules and sessions: a batch is so many messages, and the next ones
    are published when all of them are confirmed.
    """

    def __init__(self, pika: PlainPika, load: BenchLoad) -> None:
        self.name = PEER
        self._pika = pika
        self._load = load
        self._body = load.body

    @property
    def works(self) -> Collection[str]:
        """Which works it does."""
        return ("send", "in-flight", "batches", "receive")

    async def round(
        self, work: str, limit: RoundLimit, account: MessageAccount
    ) -> Mapping[str, float]:
        """Do a round; see `Bench`."""
        if work == "receive":
            await self._fill(account, limit.messages)
            limit.begin()
            await self._receive(limit, account)
        else:
            limit.begin()
            await self._send(work, limit, account)
        rate = limit.rate()
        await self._take_the_rest(account)
        return {work: rate}

    async def _send(self, work: str, limit: RoundLimit, account: MessageAccount) -> None:
        load = self._load
        window = {"send": 1, "in-flight": load.in_flight, "batches": load.batch}[work]

        def next_id() -> str | None:
            return account.new_id() if limit.take() else None

        def confirmed(message_id: str) -> None:
            account.note_sent(message_id)
            limit.note_done()

        await self._pika.publish(
            next_id, confirmed, self._body, window, in_groups=work == "batches"
        )

    async def _fill(self, account: MessageAccount, count: int) -> None:
        """Publish messages, of which nothing is measured."""
        ids = (account.new_id() for _ in range(count))
        await self._pika.publish(
            lambda: next(ids, None), account.note_sent, self._body, self._load.in_flight
        )

    async def _receive(self, limit: RoundLimit, account: MessageAccount) -> None:
        def came(message_id: Any) -> bool:
            if not limit.take():
                return False
            account.note_came(message_id)
            limit.note_done()
            return True

        await self._pika.consume(came, lambda: limit.is_over, self._load.in_flight, silent_s=COME_S)

    async def _take_the_rest(self, account: MessageAccount) -> None:
        """Receive what has not come yet, and what comes though nothing is to come any more."""

        def came(message_id: Any) -> bool:
            account.note_came(message_id)
            return True

        ahead = self._load.in_flight
        await self._pika.consume(came, lambda: not account.missing, ahead, silent_s=COME_S)
        await self._pika.consume(came, lambda: False, ahead, silent_s=MORE_S)
