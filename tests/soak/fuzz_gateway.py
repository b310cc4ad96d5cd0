"""Feed the gateway mutated frames: `python -m tests.soak.fuzz_gateway --frames 1000000 --seed N`.

Whole conversations of a client (tokens, links, batches, credit, outcomes, `$management`) are
replayed against a connection with an engine in memory; many of their frames are changed first:
bytes, lengths, fields, values, order. Nothing may be logged as an error, nothing may be raised, and
memory may not grow. Exits with 1 and the seed of the conversation when that fails.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

from bridge.access.access import Access
from bridge.gateway.client.admission import Visit
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.server import Gateway
from bridge.model.access import sign
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Queue, Right
from bridge.wire.amqp10 import types, writing
from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import BATCH_FORMAT, AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Char, Described, Symbol, Timestamp, Uint, Ulong
from tests.bench.memory_namespace import MemoryNamespace

SEED = 20261121
RSS_GROWTH_MB_MAX = 100
KEY = "SAS_KEY_VALUE"
RULE = AuthorizationRule(name="Root", primary_key=KEY, rights=frozenset(Right))
FIRST = 0x40000000


class FaultSeen(Exception):
    """The gateway logged an error."""


class Watch(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.seen.append(logging.Formatter().format(record))


class Sink(asyncio.Transport):
    """A socket whose other end reads everything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self.written = 0

    def write(self, data: Any) -> None:
        """Count what is written."""
        self.written += len(data)

    def can_write_eof(self) -> bool:
        """A plain socket can."""
        return True

    def write_eof(self) -> None:
        """The gateway has said all."""
        self.is_closed = True

    def close(self) -> None:
        """The gateway hangs up."""
        self.is_closed = True

    def abort(self) -> None:
        """The gateway hangs up at once."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Whether the gateway has hung up."""
        return self.is_closed

    def pause_reading(self) -> None:
        """The gateway does not read."""

    def resume_reading(self) -> None:
        """The gateway reads again."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""


def token() -> str:
    """Return a token that is valid for the queue."""
    resource_name = quote("sb://localhost/q", safe="")
    expires_s = int(time.time()) + 100_000
    signature = quote(sign(resource_name, KEY, expires_s), safe="")
    return (
        f"SharedAccessSignature sr={resource_name}&sig={signature}&se={expires_s}&skn={RULE.name}"
    )


@dataclass(slots=True)
class Step:
    """One frame of a conversation."""

    performative: Any
    payload: bytes = b""
    channel: int = 0

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        body = encode_composite(self.performative) + self.payload
        return frame_of(self.channel, body)


def frame_of(channel: int, body: bytes) -> bytes:
    """Return a frame around any body."""
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def request(operation: str, body: Any, **properties: Any) -> bytes:
    """Return an encoded request."""
    application = {"operation": operation, **properties}
    return encode_message(AmqpMessage(MessageProperties(message_id="1"), application, body))


def message(body: bytes) -> bytes:
    """Return an encoded message as SDKs write it."""
    return (
        writing.encode(Described(Ulong(0x70), [True, None, Uint(60_000)]))
        + writing.encode(
            Described(
                Ulong(0x72), {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(9_000_000_000_000)}
            )
        )
        + writing.encode(Described(Ulong(0x73), ["id", None, None, "subject"]))
        + writing.encode(Described(Ulong(0x74), {"a": 1, "b": UUID(int=5), "c": Char("x")}))
        + writing.encode(Described(Ulong(0x75), body))
    )


def plain(body: bytes) -> bytes:
    """Return the smallest message."""
    return writing.encode(Described(Ulong(0x75), body))


def conversation(generator: random.Random, sas: str) -> list[Step]:
    """Return what a client would say, in order."""
    put = request("put-token", sas, name="sb://localhost/q", type="jwt")
    steps = [
        Step(Open("client", max_frame_size=generator.choice([512, 4096, 65536]))),
        Step(Begin(None, 0, 100, 100)),
        _attach(0, "cbs-out", Source("$cbs"), Target("$cbs"), role=False),
        _attach(1, "cbs-in", Source("$cbs"), Target("$cbs"), role=True),
        Step(Flow(0, 100, 0, 100, 1, 0, 10)),
        Step(Transfer(0, 0, b"0", 0), put),
        _attach(2, "sender", Source("me"), Target("amqps://localhost:5671/q"), role=False),
        _attach(3, "receiver", Source("Q"), Target("me"), role=True, snd_settle_mode=0),
        _attach(4, "mgmt-out", Source("x"), Target("q/$management"), role=False),
        _attach(5, "mgmt-in", Source("q/$management"), Target("x"), role=True),
    ]
    traffic = [
        lambda at: Step(Transfer(2, at, b"1", 0), message(b"body")),
        lambda at: Step(Transfer(2, at, b"1", 0, True), plain(b"body" * 100)),
        lambda at: Step(
            Transfer(2, at, b"2", BATCH_FORMAT),
            b"".join(plain(message(b"x") if each else plain(b"y")) for each in range(3)),
        ),
        lambda at: Step(Transfer(2, at, b"3", 0, False, True), plain(b"z")[:4]),
        lambda at: Step(Flow(FIRST, 100, 0, 100, 3, 0, generator.randrange(20))),
        lambda at: Step(Flow(FIRST, 100, 0, 100, 3, 0, 5, drain=True, echo=True)),
        lambda at: Step(Flow(FIRST, 100, 0, 100, 5, 0, 10)),
        lambda at: Step(Disposition(True, FIRST + generator.randrange(6), None, False, Accepted())),
        lambda at: Step(Disposition(True, FIRST, FIRST + 3, False, Modified(True))),
        lambda at: Step(Disposition(True, FIRST + 1, FIRST + 2, True, Released())),
        lambda at: Step(
            Disposition(
                True,
                FIRST + 4,
                None,
                False,
                Rejected(Error("com.microsoft:dead-letter", None, {"DeadLetterReason": "r"})),
            )
        ),
        lambda at: Step(
            Transfer(4, at, b"4", 0),
            request(
                "com.microsoft:schedule-message",
                {"messages": [{"message-id": "1", "message": message(b"later")}]},
            ),
        ),
        lambda at: Step(
            Transfer(4, at, b"5", 0),
            request("com.microsoft:renew-lock", {"lock-tokens": Array("uuid", (UUID(int=at),))}),
        ),
        lambda at: Step(
            Transfer(4, at, b"6", 0),
            request(
                "com.microsoft:update-disposition",
                {
                    "disposition-status": "suspended",
                    "lock-tokens": Array("uuid", (UUID(int=at),)),
                    "properties-to-modify": {"a": 1},
                },
            ),
        ),
        lambda at: Step(
            Transfer(4, at, b"7", 0),
            request(
                "com.microsoft:cancel-scheduled-message",
                {"sequence-numbers": Array("long", (generator.randrange(9),))},
            ),
        ),
        lambda at: Step(Transfer(4, at, b"8", 0), request("com.microsoft:peek-message", {})),
    ]
    for number in range(1, generator.randrange(2, 30)):
        step = generator.choice(traffic)(number)
        steps.append(step)
        if getattr(step.performative, "more", False):
            rest = Transfer(2, None, None, None, aborted=generator.random() < 0.3)
            steps.append(Step(rest, plain(b"z")[4:]))
    ending = [Step(Detach(3, True)), Step(Detach(2, False)), Step(End()), Step(Close())]
    return steps + ending[generator.randrange(4) :]


def _attach(handle: int, name: str, source: Source, target: Target, **more: Any) -> Step:
    count = None if more["role"] else 0
    return Step(
        Attach(
            name=name,
            handle=handle,
            source=source,
            target=target,
            initial_delivery_count=count,
            **more,
        )
    )


ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    Uint(7),
    Ulong(2**64 - 1),
    "",
    "q",
    "$cbs",
    "nope/$management",
    "x" * 70_000,
    b"",
    b"\xff" * 300,
    [],
    {},
    {Symbol("com.microsoft:session-filter"): None},
    Array("symbol", (Symbol("a"),)),
    Described(Ulong(0x24), []),
    Described(Ulong(0x30), []),
    Described(Ulong(0x34), [b"txn", Described(Ulong(0x24), [])]),
    Described(Ulong(0x28), ["q"]),
    Symbol("amqp:x"),
    UUID(int=1),
]


def mutate(generator: random.Random, step: Step) -> bytes:
    """Return a step's frame, spoilt in one of many ways; most of them leave it a frame."""
    way = generator.randrange(24)
    raw = bytearray(step.encode())
    if way >= 16 and step.payload:
        payload = bytearray(step.payload)
        for _ in range(generator.randrange(1, 4)):
            payload[generator.randrange(len(payload))] = generator.randrange(256)
        cut = generator.randrange(len(payload)) if generator.random() < 0.2 else len(payload)
        return Step(step.performative, bytes(payload[:cut]), step.channel).encode()
    if way >= 10:
        return shift_number(generator, step).encode()
    if way < 3:
        for _ in range(generator.randrange(1, 4)):
            raw[generator.randrange(8, len(raw)) if len(raw) > 8 else 0] = generator.randrange(256)
    elif way == 3:
        raw[generator.randrange(8)] = generator.randrange(256)
    elif way == 4:
        body = bytes(raw[8 : generator.randrange(8, len(raw) + 1)])
        return frame_of(step.channel, body)
    elif way == 5:
        return frame_of(generator.choice([0, 0, 1, 9, 4999, 65535]), bytes(raw[8:]))
    elif way == 6:
        return bytes(raw) * 2
    elif way == 7:
        return frame_of(0, generator.randbytes(generator.randrange(60)))
    else:
        return spoil_field(generator, step)
    return bytes(raw)


def shift_number(generator: random.Random, step: Step) -> Step:
    """Return a step with another number, flag or state in a field that has one."""
    performative = replace(step.performative)
    names = [
        each.name
        for each in fields(performative)
        if isinstance(getattr(performative, each.name), int | None)
    ]
    if names:
        name = generator.choice(names)
        value = getattr(performative, name)
        if isinstance(value, bool):
            setattr(performative, name, not value)
        elif value is not None:
            step_by = generator.choice([-1, 1, 2, 100, 2**31])
            setattr(performative, name, (value + step_by) % 2**8)
        elif name == "state":
            performative.state = generator.choice([Accepted(), Released(), Modified(True, True)])
    return Step(performative, step.payload, step.channel)


def spoil_field(generator: random.Random, step: Step) -> bytes:
    """Return a frame with another value in one of its fields."""
    described, _ = types.decode(encode_composite(step.performative))
    items = list(described.value)
    if items:
        items[generator.randrange(len(items))] = generator.choice(ODD_VALUES)
    return frame_of(
        step.channel, writing.encode(Described(described.descriptor, items)) + step.payload
    )


@dataclass
class Report:
    """How far the fuzzing has come."""

    mutated: int = 0
    sent: int = 0
    conversations: int = 0
    survived: int = 0
    rss_mb: list[float] = field(default_factory=list)


def rss_mb() -> float:
    """Return the memory of this process."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * resource.getpagesize() / 1_048_576


async def converse(gateway: Gateway, generator: random.Random, sas: str, report: Report) -> None:
    """Hold one conversation."""
    visit = gateway.admission.enter("127.0.0.1")
    assert isinstance(visit, Visit)
    connection, sink = ClientConnection(gateway.connections, visit), Sink()
    connection.connection_made(sink)
    connection.data_received(
        ProtocolHeader.SASL.value
        + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
        + ProtocolHeader.AMQP.value
    )
    early, late = generator.choice([(0.0, 0.5), (0.02, 0.3), (0.3, 0.6)])
    for position, step in enumerate(conversation(generator, sas)):
        is_mutated = generator.random() < (early if position < 10 else late)
        raw = mutate(generator, step) if is_mutated else step.encode()
        report.mutated += is_mutated
        report.sent += 1
        for portion in portions(generator, raw):
            connection.data_received(portion)
        if generator.random() < 0.3:
            await asyncio.sleep(0)
        if sink.is_closed:
            report.survived += isinstance(step.performative, Close) and not is_mutated
            break
    else:
        report.survived += 1
    await asyncio.sleep(0)
    connection.connection_lost(None)
    report.conversations += 1


def portions(generator: random.Random, raw: bytes) -> Iterator[bytes]:
    """Cut bytes as a network might."""
    if generator.random() < 0.8:
        yield raw
        return
    cut = generator.randrange(len(raw) + 1)
    yield raw[:cut]
    yield raw[cut:]


async def fuzz(frames: int, seed: int, *, says_progress: bool = False) -> Report:
    """Hold conversations until so many mutated frames have been sent.

    Raises:
        FaultSeen: something was logged as an error; names the conversation's seed.
    """
    watch = Watch()
    logger = logging.getLogger("busbridge.gateway")
    logger.addHandler(watch)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: watch.seen.append(str(context)))
    report, sas = Report(), token()
    namespace = fresh_namespace()
    gateway = Gateway(namespace, Access(AccessRuleSet(namespace=(RULE,))), GatewaySettings())
    last_said = 0
    try:
        while report.mutated < frames:
            conversation_seed = seed * 1_000_003 + report.conversations
            await converse(gateway, random.Random(conversation_seed), sas, report)
            if watch.seen:
                raise FaultSeen(f"conversation seed {conversation_seed}: {watch.seen[0]}")
            if report.conversations % 1000 == 0:
                namespace.forget()
                gateway.connections.namespace = namespace = fresh_namespace()
            if report.mutated - last_said >= frames / 20:
                last_said = report.mutated
                report.rss_mb.append(rss_mb())
                if says_progress:
                    print(f"{report.mutated:>9} frames, {report.rss_mb[-1]:.0f} MB", flush=True)
    finally:
        logger.removeHandler(watch)
    return report


def fresh_namespace(sent_bytes_max: int = 4_096) -> MemoryNamespace:
    """Return an empty namespace: what conversations left is not the gateway's memory."""
    namespace = MemoryNamespace(Queue(name="q", lock_duration_ms=5_000))
    namespace.sent_bytes_max = sent_bytes_max
    return namespace


def main() -> int:
    """Fuzz and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    started_s = time.monotonic()
    report = asyncio.run(fuzz(arguments.frames, arguments.seed, says_progress=True))
    growth_mb = max(report.rss_mb) - report.rss_mb[0]
    print(
        f"{report.mutated} mutated of {report.sent} frames in {report.conversations} conversations "
        f"({report.survived} went on to their end), seed {arguments.seed}, "
        f"{time.monotonic() - started_s:.0f} s; memory grew by {growth_mb:.0f} MB"
    )
    return 0 if growth_mb < RSS_GROWTH_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
