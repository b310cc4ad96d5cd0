"""Every field of an attach is heeded, refused or left out of the answer, as docs/mapping.md says.

`ROWS` has a row for each of the page's, with attaches and what they are answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.wire.amqp10.performatives import (
    Attach,
    Coordinator,
    Detach,
    Flow,
    Modified,
    Source,
    Target,
    Transfer,
)
from bridge.wire.amqp10.types import Described, Symbol, Uint, Ulong
from bridge.wire.link_properties import RELAY_SOURCE
from tests.conformance.client import Client
from tests.conformance.served import QUEUE, client, gateway, message, queue_of
from tests.conformance.test_sessions import QUEUE as WITH_SESSIONS

PAGE = Path(__file__).parents[2] / "docs/mapping.md"

SESSION = Symbol("com.microsoft:session-filter")
SELECTOR = {Symbol("apache.org:selector-filter:string"): Described(Ulong(0x468C00000004), "a = 1")}
NO_LOCAL = {Symbol("apache.org:no-local-filter:list"): Described(Ulong(0x468C00000003), [])}
ASKED_OUTCOMES = ("amqp:accepted:list", "amqp:modified:list", "other:outcome:list")
DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never", "timeout": 7}
SYMBOLS = (Symbol("queue"), Symbol("shared"))
DELIVERY_STATES = {b"\x01": Described(Ulong(0x24), [])}
NODES = ("$cbs", "q/$management")


@dataclass
class Case:
    """An attach, and what comes of it.

    Attributes:
        role: true of a receiver.
        asked: fields of the attach.
        answered: fields of the answer.
        refused: what the refusal says; the answer is none.
    """

    role: bool
    asked: dict[str, Any]
    answered: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    address: str = "q"
    sessions: bool = False


def receiver(answered: dict[str, Any] | None = None, refused: str = "", **asked: Any) -> Case:
    """An attach of a receiver."""
    return Case(True, asked, answered or {}, refused)


def sender(answered: dict[str, Any] | None = None, refused: str = "", **asked: Any) -> Case:
    """An attach of a sender."""
    return Case(False, asked, answered or {}, refused)


def at_nodes(case: Case) -> list[Case]:
    """The same attach to the nodes of requests."""
    return [Case(case.role, case.asked, case.answered, case.refused, node) for node in NODES]


def of_session(answered: Any, wanted: Any, **asked: Any) -> Case:
    """An attach to a session."""
    source = Source("q", filter={SESSION: wanted})
    says = {"source": Source("q", filter={SESSION: answered})}
    return Case(True, {"source": source, **asked}, says, sessions=True)


ROWS: dict[str, list[Case]] = {
    "name, handle": [
        receiver({"name": "mine", "handle": 7, "role": False}, name="mine"),
        sender({"name": "mine", "handle": 7, "role": True}, name="mine"),
    ],
    "snd-settle-mode": [
        *(
            receiver({"snd_settle_mode": answered}, snd_settle_mode=asked)
            for asked, answered in ((0, 0), (1, 1), (2, 0))
        ),
        *(sender({"snd_settle_mode": mode}, snd_settle_mode=mode) for mode in range(3)),
        *(
            case
            for mode in range(3)
            for case in at_nodes(receiver({"snd_settle_mode": 1}, snd_settle_mode=mode))
        ),
    ],
    "rcv-settle-mode": [
        *(receiver({"rcv_settle_mode": mode}, rcv_settle_mode=mode) for mode in range(2)),
        *(sender({"rcv_settle_mode": 0}, rcv_settle_mode=mode) for mode in range(2)),
        *at_nodes(sender({"rcv_settle_mode": 0}, rcv_settle_mode=1)),
    ],
    "address of source and target": [
        receiver({"source": Source("q"), "target": Target("client-7")}),
        sender({"source": Source("client-7"), "target": Target("q")}),
        sender({"source": None, "target": Target("q")}, source=None),
        receiver({"source": Source("q"), "target": Target()}, target=Target()),
        receiver(refused="amqp:not-found", source=Source("missing")),
    ],
    "durable, expiry-policy, timeout": [
        receiver(
            {"source": Source("q"), "target": Target("t")},
            source=Source("q", **DURABLE),
            target=Target("t", **DURABLE),
        ),
        sender(
            {"source": Source("s"), "target": Target("q")},
            source=Source("s", **DURABLE),
            target=Target("q", **DURABLE),
        ),
    ],
    "dynamic, dynamic-node-properties": [
        receiver(refused="dynamic source", source=Source(dynamic=True)),
        receiver(refused="dynamic source", source=Source("q", dynamic=True)),
        sender(refused="dynamic source or target", target=Target(dynamic=True)),
        receiver({"target": Target("t")}, target=Target("t", dynamic=True)),
        sender({"source": Source("s")}, source=Source("s", dynamic=True)),
        receiver(
            {"source": Source("q")},
            source=Source("q", dynamic_node_properties={Symbol("lifetime-policy"): "x"}),
        ),
        Case(True, {"source": Source("$cbs", dynamic=True)}, {}, "dynamic source"),
        Case(False, {"target": Target("q/$management", dynamic=True)}, {}, "dynamic source"),
    ],
    "distribution-mode": [
        receiver(
            {"source": Source("q", distribution_mode="move")},
            source=Source("q", distribution_mode="move"),
        ),
        receiver(refused="peek", source=Source("q", distribution_mode="copy")),
        receiver(refused="'other'", source=Source("q", distribution_mode="other")),
        sender({"source": Source("s")}, source=Source("s", distribution_mode="copy")),
    ],
    "filter": [
        of_session("one", "one"),
        of_session(Described(Ulong(0x137000000C), "one"), Described(Ulong(0x137000000C), "one")),
        receiver({"source": Source("q")}, source=Source("q", filter={})),
        receiver(refused="selector-filter", source=Source("q", filter=SELECTOR)),
        receiver(refused="no-local-filter", source=Source("q", filter=NO_LOCAL)),
        Case(
            True,
            {"source": Source("q", filter={SESSION: "one", **SELECTOR})},
            refused="selector-filter",
            sessions=True,
        ),
        *(
            Case(True, {"source": Source(node, filter={SESSION: None})}, {"source": Source(node)})
            for node in NODES
        ),
        Case(True, {"source": Source("$cbs", filter=SELECTOR)}, refused="selector-filter"),
        sender({"source": Source("s")}, source=Source("s", filter=SELECTOR)),
    ],
    "default-outcome": [
        receiver({"source": Source("q")}, source=Source("q", default_outcome=Modified(True))),
        sender({"source": Source("s")}, source=Source("s", default_outcome=Modified(True))),
    ],
    "outcomes": [
        receiver(
            {"source": Source("q", outcomes=ASKED_OUTCOMES[:2])},
            source=Source("q", outcomes=ASKED_OUTCOMES),
        ),
        receiver({"source": Source("q")}, source=Source("q", outcomes=ASKED_OUTCOMES[2:])),
        sender({"source": Source("s")}, source=Source("s", outcomes=ASKED_OUTCOMES)),
    ],
    "capabilities of source and target": [
        receiver(
            {"source": Source("q"), "target": Target("t")},
            source=Source("q", capabilities=SYMBOLS),
            target=Target("t", capabilities=SYMBOLS),
        ),
        sender({"target": Target("q")}, target=Target("q", capabilities=SYMBOLS)),
    ],
    "target of a transaction": [
        sender({"target": Coordinator()}, target=Coordinator(("amqp:local-transactions",)))
    ],
    "unsettled, incomplete-unsettled": [
        make(
            {"unsettled": None, "incomplete_unsettled": False},
            unsettled=DELIVERY_STATES,
            incomplete_unsettled=True,
        )
        for make in (receiver, sender)
    ],
    "initial-delivery-count": [
        receiver({"initial_delivery_count": 0}),
        sender({"initial_delivery_count": None}, initial_delivery_count=0xFFFF_FFF0),
    ],
    "max-message-size": [
        receiver({"max_message_size": 0}, max_message_size=10),
        sender({"max_message_size": 262_144}, max_message_size=10),
    ],
    "offered-capabilities, desired-capabilities": [
        make(
            {"offered_capabilities": None, "desired_capabilities": None},
            offered_capabilities=SYMBOLS,
            desired_capabilities=SYMBOLS,
        )
        for make in (receiver, sender)
    ],
    "properties": [
        receiver({"properties": None}, properties={Symbol("com.microsoft:timeout"): Uint(5)}),
        sender(
            {"properties": {"com.microsoft:max-message-batch-size": 262_144}},
            properties={Symbol("any"): "thing"},
        ),
        sender(
            {"properties": {"com.microsoft:max-message-batch-size": 262_656, RELAY_SOURCE: "one"}},
            properties={RELAY_SOURCE: "one"},
        ),
    ],
}


def test_each_row_of_the_page_is_tried() -> None:
    """And none that the page does not have."""
    _, section = PAGE.read_text().split("## Attach, field by field\n")
    rows = [line.split(" | ")[0] for line in section.split("\n## ")[0].splitlines()]
    documented = [row.removeprefix("| ") for row in rows if row.startswith("| ")]
    assert documented[1:] == list(ROWS)


@pytest.mark.parametrize(
    ("row", "number"),
    [(row, number) for row, cases in ROWS.items() for number in range(len(cases))],
)
async def test_what_an_attach_is_answered(row: str, number: int) -> None:
    """As the page says, and a refusal has neither source nor target."""
    case = ROWS[row][number]
    queue = WITH_SESSIONS if case.sessions else QUEUE
    async with gateway(queue=queue) as (_, port), client(port) as peer:
        peer.attach(7, case.address, role=case.role, **case.asked)
        answer = await peer.next(Attach, handle=7)
        if case.refused:
            assert (answer.source, answer.target) == (None, None)
            error = (await peer.next(Detach, handle=7)).error
            assert case.refused in f"{error.condition} {error.description}"
            if case.refused != "amqp:not-found":
                assert error.condition == "amqp:not-implemented"
            return
        for name, value in case.answered.items():
            assert getattr(answer, name) == value, name


async def sent(peer: Client, count: int) -> None:
    """Send messages to `q`."""
    peer.attach(7, "q", role=False)
    await peer.next(Attach, handle=7)
    for _ in range(count):
        await peer.outcome(peer.transfer(7, message(b"x")))


async def test_a_browser_takes_nothing() -> None:
    """Its link is refused before a message is out, whatever credit came with it."""
    async with gateway() as (served, port), client(port) as peer:
        await sent(peer, 3)
        peer.attach(8, "q", role=True, source=Source("q", distribution_mode="copy"))
        peer.credit(8, 10)
        await peer.next(Detach, handle=8)
        assert len(queue_of(served).active) == 3
        assert not [each for each, _ in peer.frames if isinstance(each, Transfer)]


@pytest.mark.parametrize(("mode", "is_settled"), [(0, False), (1, True), (2, False)])
async def test_the_answered_mode_is_in_force(mode: int, is_settled: bool) -> None:
    """Messages are sent settled, or not, as the answer says."""
    async with gateway() as (_, port), client(port) as peer:
        await sent(peer, 1)
        peer.attach(8, "q", role=True, snd_settle_mode=mode)
        peer.credit(8, 1)
        assert (await peer.next(Attach, handle=8)).snd_settle_mode == int(is_settled)
        transfer, _ = await peer.next(Transfer, handle=8)
        assert transfer.settled is is_settled


async def test_the_initial_delivery_count_of_a_sender() -> None:
    """Credit is counted from it on, across the end of the numbers."""
    first = 0xFFFF_FFFE
    async with gateway(send_credit=4) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False, initial_delivery_count=first)
        flow = await peer.next(Flow, handle=7)
        assert (flow.delivery_count, flow.link_credit) == (first, 4)
        for _ in range(4):
            await peer.outcome(peer.transfer(7, message(b"x")))
        assert len(queue_of(served).active) == 4
        assert (await peer.next(Flow, handle=7)).delivery_count in (0, 1, 2)
