"""Feed the gateway frames of hostile structure: `python -m tests.soak.fuzz_hostile --frames N`.

Conversations of `fuzz_gateway` are held, and many of their frames bear a value that is made to
cost: nested, zero-width, keys of one hash, sizes and counts that lie; as a field of a performative,
a section, a body, a request, a batch. No frame may take more than 100 ms of the loop, nor the
bridge more than ten times its size in memory. Exits with 1 and the frame that does.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import logging
import random
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import Final

from bridge.access.access import Access
from bridge.gateway.client.admission import Visit
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.wire.amqp10 import types, writing
from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import BATCH_FORMAT
from bridge.wire.amqp10.performatives import SaslInit, Transfer
from tests.soak.fuzz_gateway import (
    RULE,
    SEED,
    FaultSeen,
    Sink,
    Step,
    Watch,
    conversation,
    frame_of,
    fresh_namespace,
    plain,
    request,
    token,
)
from tests.unit.wire.amqp10 import hostile

STALL_S_MAX: Final = 0.1
MEMORY_FACTOR_MAX: Final = 10
MEMORY_BYTES_FREE: Final = 1_048_576
"""What a frame may take whatever its size: the connection's own state, and Python's."""

MESSAGE_BYTES_MAX: Final = 1_048_576
_FRAME_BYTES: Final = 200_000
_TRACED_EVERY: Final = 200
_SIZES: Final = (20, 20, 100, 100, 100, 1_000, 1_000, 5_000, 12_000)
_LARGE: Final = (60_000, 250_000, 1_000_000)
_SECTIONS: Final = (0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78)


@dataclass
class Costs:
    """What the dearest frame has cost.

    Attributes:
        stall_s: CPU time from its bytes to the end of what they have started.
        memory: peak of memory over what is free, by the frame's size; of those that were traced.
    """

    frames: int = 0
    conversations: int = 0
    traced: int = 0
    stall_s: float = 0.0
    slowest: str = ""
    memory: float = 0.0
    largest: str = ""
    shapes: set[str] = field(default_factory=set)


@functools.lru_cache(maxsize=512)
def _shape(name: str, size: int) -> bytes:
    return hostile.SHAPES[name](size)


def value(generator: random.Random, limit: int) -> tuple[str, bytes]:
    """Return a hostile value of about `limit` bytes at most, and what it is."""
    sizes = _LARGE if generator.random() < 0.002 else _SIZES
    size = min(generator.choice(sizes), limit)
    name = generator.choice(list(hostile.SHAPES))
    return f"{name}, {size} bytes,", _shape(name, size)


def in_field(generator: random.Random, step: Step) -> tuple[str, bytes]:
    """Return a step's frame with a hostile value in one of its fields."""
    name, raw = value(generator, 12_000)
    described, _ = types.decode(encode_composite(step.performative))
    items = [writing.encode(item) for item in described.value] or [b""]
    at = generator.randrange(len(items))
    if generator.random() < 0.5:
        raw = hostile.compound(0xD1, 2, b"\xa3\x01k" + raw)
    items[at] = raw
    kind = type(step.performative).__name__
    body = b"\x00" + writing.encode(described.descriptor)
    body += hostile.compound(0xD0, len(items), b"".join(items)) + step.payload
    return f"{name} in field {at} of {kind}", frame_of(step.channel, body)


def in_message(generator: random.Random, step: Step) -> tuple[str, bytes]:
    """Return a transfer, in frames, whose message holds a hostile value."""
    name, raw = value(generator, MESSAGE_BYTES_MAX - 1_000)
    code = generator.choice(_SECTIONS)
    way = generator.randrange(5)
    if way == 0:
        raw = hostile.compound(0xD1, 2, b"\xa3\x01k" + raw)
    elif way == 1:
        raw = hostile.compound(0xD0, 1, raw)
    message = bytes((0x00, 0x53, code)) + raw + plain(b"x")
    transfer: Transfer = step.performative
    if way == 2:
        message = plain(message) * generator.randrange(1, 4)
        transfer = Transfer(transfer.handle, transfer.delivery_id, b"b", BATCH_FORMAT)
    elif way == 3:
        count = generator.choice((10, 10, 100, 300))
        name, message = f"a batch, {count} messages,", b"\x00\x53\x75\xa0\x00" * count
        transfer = Transfer(transfer.handle, transfer.delivery_id, b"b", BATCH_FORMAT)
    elif way == 4 and len(step.payload) > 20:
        # a request whose body is hostile: the value takes the place of its amqp-value
        message = step.payload[: step.payload.find(b"\x00\x53\x77") + 3] + raw
    return f"{name} in section {code:#x}", b"".join(_frames(step.channel, transfer, message))


def _frames(channel: int, transfer: Transfer, message: bytes) -> list[bytes]:
    parts = [message[at : at + _FRAME_BYTES] for at in range(0, len(message), _FRAME_BYTES)]
    frames = []
    for number, part in enumerate(parts):
        one = Transfer(
            transfer.handle,
            transfer.delivery_id if number == 0 else None,
            transfer.delivery_tag if number == 0 else None,
            transfer.message_format if number == 0 else None,
            more=number < len(parts) - 1,
        )
        frames.append(frame_of(channel, encode_composite(one) + part))
    return frames


def _messages(generator: random.Random) -> list[Step]:
    """Return messages for the sender and requests for `$management`, to be made hostile."""
    body = request("com.microsoft:peek-message", {})
    return [
        Step(Transfer(generator.choice((2, 2, 2, 4)), 1_000 + number, b"h", 0), body)
        for number in range(60)
    ]


async def _fed(connection: ClientConnection, raw: bytes) -> None:
    connection.data_received(raw)
    for _ in range(5):
        await asyncio.sleep(0)


async def measure(connection: ClientConnection, name: str, raw: bytes, costs: Costs) -> None:
    """Feed hostile bytes and note what they cost."""
    costs.frames += 1
    if costs.frames % _TRACED_EVERY == 0:
        costs.traced += 1
        tracemalloc.start()
        await _fed(connection, raw)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        factor = max(peak - MEMORY_BYTES_FREE, 0) / len(raw)
        if factor > costs.memory:
            costs.memory, costs.largest = factor, f"{name}: {peak} bytes for {len(raw)}"
        return
    started_s = time.process_time()
    await _fed(connection, raw)
    spent_s = time.process_time() - started_s
    if spent_s > costs.stall_s:
        costs.stall_s, costs.slowest = spent_s, f"{name}: {spent_s * 1000:.0f} ms"


async def converse(gateway: Gateway, generator: random.Random, sas: str, costs: Costs) -> None:
    """Hold one conversation, some of whose frames are hostile."""
    visit = gateway.admission.enter("127.0.0.1")
    assert isinstance(visit, Visit)
    connection, sink = ClientConnection(gateway.connections, visit), Sink()
    connection.connection_made(sink)
    connection.data_received(
        ProtocolHeader.SASL.value
        + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
        + ProtocolHeader.AMQP.value
    )
    early, late = generator.choice([(0.0, 0.3), (0.0, 0.1), (0.0, 0.1), (0.5, 0.8)])
    steps = conversation(generator, sas)
    if not early:
        steps[10:10] = _messages(generator)
    for position, step in enumerate(steps):
        rate = early if position < 10 else 1.0 if isinstance(step.performative, Transfer) else late
        if generator.random() < rate:
            is_message = isinstance(step.performative, Transfer) and generator.random() < 0.95
            name, raw = (in_message if is_message else in_field)(generator, step)
            costs.shapes.add(name.partition(",")[0])
            await measure(connection, name, raw, costs)
        else:
            connection.data_received(step.encode())
        if sink.is_closed:
            break
    await asyncio.sleep(0)
    connection.connection_lost(None)
    costs.conversations += 1


async def fuzz(frames: int, seed: int, *, says_progress: bool = False) -> Costs:
    """Hold conversations until so many hostile frames have been sent.

    Raises:
        FaultSeen: something was logged as an error; names the conversation's seed.
    """
    watch = Watch()
    logger = logging.getLogger("busbridge.gateway")
    logger.addHandler(watch)
    costs, sas, last_said = Costs(), token(), 0
    namespace = fresh_namespace(MESSAGE_BYTES_MAX)
    gateway = Gateway(namespace, Access(AccessRuleSet(namespace=(RULE,))), GatewaySettings())
    try:
        while costs.frames < frames:
            conversation_seed = seed * 1_000_003 + costs.conversations
            await converse(gateway, random.Random(conversation_seed), sas, costs)
            if watch.seen:
                raise FaultSeen(f"conversation seed {conversation_seed}: {watch.seen[0]}")
            if costs.conversations % 20 == 0:
                # what it has stored is no cost of the next frame, nor is Python's look at all of it
                namespace.forget()
                gateway.connections.namespace = namespace = fresh_namespace(MESSAGE_BYTES_MAX)
                gc.collect()
            if says_progress and costs.frames - last_said >= frames / 20:
                last_said = costs.frames
                print(f"{costs.frames:>9} frames; {costs.slowest}; {costs.largest}", flush=True)
    finally:
        logger.removeHandler(watch)
    return costs


def main() -> int:
    """Fuzz and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    started_s = time.monotonic()
    costs = asyncio.run(fuzz(arguments.frames, arguments.seed, says_progress=True))
    print(
        f"{costs.frames} hostile frames in {costs.conversations} conversations, "
        f"{len(costs.shapes)} shapes, seed {arguments.seed}, "
        f"{time.monotonic() - started_s:.0f} s; slowest: {costs.slowest}; "
        f"dearest of {costs.traced} in memory: {costs.largest}"
    )
    is_fine = costs.stall_s <= STALL_S_MAX and costs.memory <= MEMORY_FACTOR_MAX
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
