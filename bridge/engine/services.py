"""The engine's parts that queue readers, owners and peeks are built on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.background.supervisor import Supervisor
from bridge.engine.bridge_watch import BridgeWatch
from bridge.engine.browse.settlements import UnwrittenSettlements
from bridge.engine.counters import Counters
from bridge.engine.poison import Poison
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.message.asking import Inquirer
from bridge.message.departure import Departure
from bridge.topology.resources import Queue


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the engine that own, lock, publish and count for every entity.

    Attributes:
        poison: the counter and log of messages that could not be handled.
        on_missing: called with an entity's path when one of its queues is missing.
        on_made_again: called with a queue that was missing, deleted by hand, and is there again.
        inquirer: asks leaders what transactions have settled.
        supervisor: keeps what is meant to run, and repeats what must succeed.
        watch: tells which bridges are gone, of those for which something is kept.
    """

    connections: ConsumerConnections
    sender: Sender
    departure: Departure
    poison: Poison
    locks: ProcessLocks
    counters: Counters
    settlements: UnwrittenSettlements
    on_missing: Callable[[str], None]
    supervisor: Supervisor
    on_made_again: Callable[[Queue], None]
    inquirer: Inquirer
    watch: BridgeWatch
