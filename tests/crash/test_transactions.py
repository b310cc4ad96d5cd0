"""Transactions while anything is killed: all of each, or nothing of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.transaction_runs import QUEUES, TransactionStage, play_transactions
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.timeout(900)

RUNS = 100
SHORT = 2
"""The first ones are part of every check."""

CLUSTERED_RUNS = 20

HurtRabbitMQ = Callable[[random.Random], None]
MakeTransactionStage = Callable[[Broker, str, str, HurtRabbitMQ], TransactionStage]
"""`make(broker, vhost, seed, hurts RabbitMQ)`."""


@pytest.fixture
def make_transaction_stage(tmp_path: Path) -> Iterator[MakeTransactionStage]:
    """One bridge or two, started."""
    config = tmp_path / "Config.json"
    queues = [{"Name": name, "Properties": found} for name, found in QUEUES.items()]
    namespace = {"Name": "sbemulatorns", "Queues": queues}
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    with ExitStack() as ends:

        def made(broker: Broker, vhost: str, seed: str, hurt: HurtRabbitMQ) -> TransactionStage:
            chance = random.Random(seed)
            bridges = []
            for _ in range(chance.randint(1, 2)):
                bridge = bridge_of(broker, vhost, config=config)
                ends.callback(bridge.kill)
                bridge.start()
                bridges.append(bridge)
            return TransactionStage(bridges, hurt, tmp_path, chance)

        yield made


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.long if seed < SHORT else pytest.mark.kills)
        for seed in range(RUNS)
    ],
)
def test_each_is_done_as_a_whole_or_not_at_all_while_anything_is_killed(
    own_broker: Broker, make_transaction_stage: MakeTransactionStage, seed: int
) -> None:
    """Clients, bridges, leaders at their points, and RabbitMQ, at instants by chance."""
    node = own_broker.node
    assert node is not None
    if not node.is_running:
        node.start()

    def hurt(_: random.Random) -> None:
        node.kill()
        node.start()

    with own_broker.fresh_vhost() as vhost:
        stage = make_transaction_stage(own_broker, vhost, f"transactions {seed}", hurt)
        play_transactions(stage)


@pytest.mark.kills
@pytest.mark.parametrize("seed", range(CLUSTERED_RUNS))
def test_the_same_in_a_cluster_of_three(
    cluster: Broker, make_transaction_stage: MakeTransactionStage, seed: int
) -> None:
    """A node is killed, each by chance."""
    nodes = cluster.cluster
    assert nodes is not None

    def hurt(chance: random.Random) -> None:
        node = chance.choice(nodes.nodes)
        node.kill()
        nodes.restart(node)

    stage = make_transaction_stage(cluster, "/", f"clustered transactions {seed}", hurt)
    play_transactions(stage)
