"""What a fault of the bridge's own may cost: the connection that it hits, and no message."""

from __future__ import annotations

from bridge.model.entity import Queue
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Attach, Close, Disposition, Transfer
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.served import QUEUE, client, gateway, message

SETTLED = 1


class Failing(MemoryNamespace):
    """Fails, as no engine should, when it is asked for one entity."""

    def receive_entity(self, path: EntityPath) -> Queue:
        """Return a queue's definition."""
        if path.entity == "broken":
            raise RuntimeError("a defect")
        return super().receive_entity(path)


async def test_a_connection_that_fails_takes_no_message_any_more() -> None:
    """Its receivers end with it: what is sent later is another client's."""
    async with (
        gateway(namespace=Failing(QUEUE)) as (_, port),
        client(port) as failing,
        client(port) as other,
    ):
        failing.attach(7, "q", role=True, snd_settle_mode=SETTLED)
        await failing.next(Attach, handle=7)
        failing.credit(7, 5)
        failing.attach(8, "broken", role=True)
        assert (await failing.next(Close)).error.condition == "amqp:internal-error"

        other.attach(7, "q", role=False)
        other.attach(8, "q", role=True, snd_settle_mode=SETTLED)
        await other.next(Attach, handle=8)
        other.credit(8, 3)
        for body in (b"a", b"b", b"c"):
            other.transfer(7, message(body))
        await other.next(Disposition)
        came = [(await other.next(Transfer, handle=8))[1] for _ in range(3)]
        assert [payload[-1:] for payload in came] == [b"a", b"b", b"c"]
        await failing.closed()
