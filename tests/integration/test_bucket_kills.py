"""RabbitMQ killed, or one of its queues at a standstill, while a bucket is made or removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pamqp.base
import pamqp.commands as spec
import pytest

from bridge.model.entity import Queue
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.sidecar import Rig
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.kills

FORGET = "P = whereis(mnesia_recover), P =/= undefined andalso sys:suspend(P)."
"""Erlang: the changes that follow are answered, and a kill takes them back (before Khepri)."""


BUCKET_QUEUES = """
[sys:{verb}(whereis(element(1, amqqueue:get_pid(Queue)))) || Queue <- rabbit_amqqueue:list(),
 binary:match(element(4, amqqueue:get_name(Queue)), <<"/$scheduled/">>) =/= nomatch].
"""
"""Erlang: the leaders of all buckets stand still (`suspend`), or go on (`resume`)."""


@pytest.fixture
def orders(start_broker: Callable[[], Broker]) -> Iterator[Rig]:
    """A queue on a RabbitMQ of its own."""
    broker = start_broker()
    with broker.fresh_vhost() as vhost:
        rig = Rig(broker, vhost, Queue(name="orders"))
        yield rig
        rig.close()


AHEAD_MS = 20_000
"""A bucket is surely made by then."""


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def stored_in(orders: Rig) -> str:
    """Return the name of the only bucket, when its message is in it."""
    eventually(lambda: any(not orders.is_empty(each) for each in orders.buckets()))
    (bucket,) = orders.buckets()
    return bucket


class AfterDeletion:
    """Holds back what follows the deletion of a bucket, for as long as that may be taken back."""

    def __init__(self) -> None:
        self.has_deleted = False

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        if isinstance(method, spec.Queue.Delete):
            self.has_deleted |= method.queue.startswith(names.bucket_prefix("orders"))
        return self.has_deleted and isinstance(method, spec.Exchange.Declare)


def is_ask(method: pamqp.base.Frame) -> bool:
    """Whether this asks what a bucket holds: it has nothing more to do but to be removed."""
    is_passive = isinstance(method, spec.Queue.Declare) and method.passive and not method.nowait
    return is_passive and method.queue.startswith(names.bucket_prefix("orders"))  # type: ignore[attr-defined,no-any-return]


class BeforeCancel:
    """Holds back the end of a bucket's consumer, the first step of its removal.

    Attributes:
        asks: how often it was asked what the bucket holds.
    """

    asks = 0

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        self.asks += is_ask(method)
        return isinstance(method, spec.Basic.Cancel)


def test_a_bucket_whose_queue_says_nothing_is_not_removed(orders: Rig) -> None:
    """RabbitMQ then answers that the queue is empty, whatever it holds, and has no consumer."""
    node = orders.broker.node
    assert node is not None
    holds = BeforeCancel()
    with Relay(orders.url, holds=is_ask) as relay:
        orders.start(url=relay.url)
        orders.send(b"a", due_ms=now_ms() + AHEAD_MS)
        bucket = stored_in(orders)
        assert [each.body for each in orders.take(1)] == [b"a"]
        assert relay.holding.wait(120)
        node.rabbitmqctl("eval", BUCKET_QUEUES.format(verb="suspend"))
        relay.release(then=holds)
        eventually(lambda: holds.asks >= 2 or relay.holding.is_set())
        assert not relay.holding.is_set()
        node.rabbitmqctl("eval", BUCKET_QUEUES.format(verb="resume"))
        assert relay.holding.wait(120)
        relay.release()

        eventually(lambda: not orders.has(bucket))


class AtDeclaration:
    """Holds back the declaration of a bucket, and all that comes later.

    Attributes:
        declaration: what is held.
    """

    declaration: spec.Queue.Declare | None = None

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        is_declaration = isinstance(method, spec.Queue.Declare)
        if is_declaration and method.queue.startswith(names.bucket_prefix("orders")):  # type: ignore[attr-defined]
            self.declaration = method
        return self.declaration is not None


def test_a_bucket_whose_declaration_is_not_answered_is_removed(orders: Rig) -> None:
    """RabbitMQ is killed in between and has it: the bridge, which lives on, knows of it."""
    node = orders.broker.node
    assert node is not None
    holds = AtDeclaration()
    with Relay(orders.url, holds=holds) as relay:
        orders.start(url=relay.url)
        due_ms = now_ms() + AHEAD_MS
        orders.send(b"a", due_ms=due_ms)
        assert relay.holding.wait(120)
        assert holds.declaration is not None
        bucket, arguments = holds.declaration.queue, holds.declaration.arguments
        orders.channel.queue_declare(bucket, durable=True, arguments=arguments)
        orders.channel.queue_declare("another", durable=True, arguments=arguments)  # makes it last
        # Then "a" needs no bucket any more, and a kill does not forget the journal.
        eventually(lambda: now_ms() > due_ms)
        orders.connection.close()
        node.kill()
        node.start()
        orders.connect()
        assert orders.has(bucket)
        relay.release()

        assert [each.body for each in orders.take(1)] == [b"a"]
        eventually(lambda: not orders.has(bucket))


class AfterSeal:
    """Holds back what is published when the first bucket is fenced: the note that it is safe."""

    is_sealed = False

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        self.is_sealed |= isinstance(method, spec.Exchange.Delete)
        return self.is_sealed and isinstance(method, spec.Basic.Publish)


def test_no_snapshot_has_a_bucket_as_provisional_that_is_safe(orders: Rig) -> None:
    """After a kill a provisional bucket is made anew: what was stored in it would be lost."""
    node = orders.broker.node
    assert node is not None
    with Relay(orders.url, holds=AfterSeal()) as relay:
        sidecar = orders.start(url=relay.url, snapshot_entries=4)
        begin_ms = now_ms()
        orders.send(bytes(1_000))
        orders.send(b"a", due_ms=begin_ms + 60_000)
        assert relay.holding.wait(120)
        # With the notes that the bucket is provisional and that it is safe these are four. What
        # comes now would have a snapshot written.
        orders.send(b"b")
        eventually(lambda: orders.is_empty(names.inbox("orders")))
        relay.release()
        assert [each.body for each in orders.take(2)] == [bytes(1_000), b"b"]
        stored_in(orders)
        sidecar.stop()
    # A kill in the first seconds may forget the journal.
    eventually(lambda: now_ms() > begin_ms + 3_000)
    orders.connection.close()
    node.kill()
    node.start()
    orders.connect()
    orders.start()

    assert [each.body for each in orders.take(1)] == [b"a"]


@pytest.mark.parametrize("dies", [False, True], ids=["the bridge lives", "the bridge dies"])
def test_a_bucket_that_comes_back_takes_messages(orders: Rig, dies: bool) -> None:
    """Its queue has lost its members: who knew it as removed could store nothing there again."""
    node = orders.broker.node
    assert node is not None
    with Relay(orders.url, holds=is_ask) as relay:
        sidecar = orders.start(url=relay.url)
        orders.send(b"a", due_ms=now_ms() + AHEAD_MS)
        bucket = stored_in(orders)
        assert [each.body for each in orders.take(1)] == [b"a"]
        assert relay.holding.wait(120)
        node.rabbitmqctl("eval", FORGET)
        relay.release(then=AfterDeletion())
        assert relay.holding.wait(120)
        eventually(lambda: not orders.has(bucket))
        orders.connection.close()
        node.kill()
        relay.release()
        if dies:
            sidecar.kill()
        node.start()
        orders.connect()
        assert orders.has(bucket) == (orders.broker.version < (4, 3))
        if dies:
            sidecar = orders.start()

        eventually(lambda: not orders.has(bucket))
        orders.send(b"b", due_ms=now_ms() + AHEAD_MS)
        stored_in(orders)
        assert [each.body for each in orders.take(1)] == [b"b"]
