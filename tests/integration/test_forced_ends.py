"""A sequencer ends under load: RabbitMQ ends its channels, or its process is killed.

What was published just before that may be in the journal and not in the active queue: a quorum
queue hears of a channel's end before it has taken all that was published there, and drops the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.model.entity import Queue
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.sidecar import Rig
from tests.fixtures.waiting import eventually
from tests.integration.test_sequencer_kills import History, drain

pytestmark = pytest.mark.kills

ROUNDS = 3
BURST = 500
SENT_MAX = 40_000

WAITING = 1_500

ENDS = {
    "connection": 'rabbit_networking:close_connection(Connection, <<"by the test">>)',
    "arrivals": "exit(Arrivals, kill)",
    "publications": "exit(Publications, kill)",
}

END_WHEN_BUSY = """
Of = fun(Key, Channel) -> proplists:get_value(Key, Channel) end,
Keys = [pid, connection, messages_unacknowledged, messages_unconfirmed],
Look = fun (_, 0) -> never_busy; (Again, Tries) ->
    All = rabbit_channel:info_all(Keys),
    Busy = [{A, P} || A <- All, Of(messages_unacknowledged, A) > 40,
                      P <- All, Of(connection, P) == Of(connection, A),
                      Of(messages_unconfirmed, P) > 40],
    case Busy of
        [] -> timer:sleep(2), Again(Again, Tries - 1);
        [{A, P} | _] ->
            Connection = Of(connection, A), Arrivals = Of(pid, A), Publications = Of(pid, P),
            {Connection, Arrivals, Publications},
            %s,
            ended
    end
end,
ok = file:write_file("%s", <<>>),
Look(Look, 15000).
"""
"""Erlang, for `rabbitmqctl eval`; the file is there when it has begun to look."""


# pika leaves the socket of a killed peer to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "what",
    [
        "connection",
        pytest.param("arrivals", marks=pytest.mark.soak),
        pytest.param("publications", marks=pytest.mark.soak),
    ],
)
def test_what_was_on_its_way_is_not_lost(
    start_broker: Callable[[], Broker], request: pytest.FixtureRequest, tmp_path: Path, what: str
) -> None:
    """No number names two messages, none is missing; a copy has its message's number."""
    broker = start_broker()
    assert broker.node is not None
    with broker.fresh_vhost() as vhost, ThreadPoolExecutor(1) as beside:
        orders = Rig(broker, vhost, Queue(name="orders"))
        request.addfinalizer(orders.close)
        orders.start()
        orders.start()
        orders.channel = orders.connection.channel()
        history = History()
        numbers = itertools.count()
        for round_ in range(ROUNDS):
            looking = tmp_path / str(round_)
            script = END_WHEN_BUSY % (ENDS[what], looking)
            ending = beside.submit(broker.node.rabbitmqctl, "eval", script)
            eventually(looking.exists)
            sent = 0
            while not ending.done() and sent < SENT_MAX:
                for _ in range(BURST):
                    orders.send(body := b"%d" % next(numbers))
                    history.sent.add(body)
                sent += BURST
                orders.connection.sleep(0.02)
            assert ending.result().strip() == "ended"
        history.judge(drain(orders, history.sent), can_repeat=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_is_lost_when_a_bridge_is_killed(
    start_broker: Callable[[], Broker], request: pytest.FixtureRequest
) -> None:
    """The next bridge comes later, and takes nothing for stored that may have been dropped."""
    broker = start_broker()
    with broker.fresh_vhost() as vhost:
        orders = Rig(broker, vhost, Queue(name="orders"))
        request.addfinalizer(orders.close)
        orders.channel = orders.connection.channel()
        history = History()
        numbers = itertools.count()
        for _ in range(ROUNDS):
            for _ in range(WAITING):
                orders.send(body := b"%d" % next(numbers))
                history.sent.add(body)
            orders.connection.sleep(0.1)
            sidecar = orders.start()
            eventually(lambda: not orders.is_empty())
            sidecar.kill()
            eventually(lambda: _is_without_consumer(orders))
        orders.start()
        history.judge(drain(orders, history.sent), can_repeat=True)


def _is_without_consumer(rig: Rig) -> bool:
    inbox = rig.connection.channel().queue_declare(names.inbox(rig.queue.name), passive=True)
    return int(inbox.method.consumer_count) == 0
