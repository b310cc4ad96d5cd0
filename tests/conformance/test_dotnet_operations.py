"""`$management` as .NET's Azure.Messaging.ServiceBus uses it, in requests made after its source.

The client itself cannot be run here: nothing of it is loaded. An answer is read as strictly as it
reads it: a value of another AMQP type than it casts to is an error here, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from bridge.testing.process import Bridge
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Attach,
    Detach,
    Disposition,
    Modified,
    Source,
    Target,
    Transfer,
)
from bridge.wire.amqp10.types import (
    Array,
    Decimal128,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    Uint,
    Ulong,
)
from bridge.wire.amqp10.writing import encode
from tests.conformance.client import Client, sas

REQUESTS, REPLIES, LINK = 10, 11, 12
SESSION = Symbol("com.microsoft:session-filter")
PRICE = Decimal128(encode_decimal(Decimal("79.90"))[1:])
LATEST_MS = 253_402_300_800_000
"""DateTime.MaxValue, as it comes out of .NET's encoder."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue for each test, one with sessions, and a topic."""
    queues: list[dict[str, Any]] = [{"Name": name} for name in ("later", "deferred", "cleared")]
    queues.append({"Name": "sessions", "Properties": {"RequiresSession": True}})
    topics = [{"Name": "events", "Subscriptions": [{"Name": "one"}]}]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics}
    path = tmp_path_factory.mktemp("config") / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


class Refused(Exception):
    """A status that is none of success; .NET maps the condition, a symbol, to an exception."""

    def __init__(self, status: int, fields: dict[str, Any]) -> None:
        super().__init__(fields["statusDescription"])
        assert type(fields["errorCondition"]) is Symbol
        self.told = status, str(fields["errorCondition"])


class Management:
    """.NET's pair of links to the `$management` of an entity."""

    def __init__(self, peer: Client, entity: str) -> None:
        self.peer = peer
        self._address = f"{entity}/$management"
        self._reply_to = uuid4().hex
        self._count = 0

    async def open(self) -> Management:
        """Attach both; messages are sent settled, both ways."""
        properties = {
            Symbol("com.microsoft:timeout"): Uint(59_999),
            Symbol("com.microsoft:entity-type"): Int(3),
        }
        common = {"snd_settle_mode": 1, "properties": properties}
        name, address = "duplex1:2:3", self._address
        self.peer.attach(
            REQUESTS, address, role=False, name=f"{name}:sender", source=Source(), **common
        )
        target = Target(self._reply_to)
        self.peer.attach(
            REPLIES, address, role=True, name=f"{name}:receiver", target=target, **common
        )
        for handle in (REQUESTS, REPLIES):
            assert (await self.peer.next(Attach, handle=handle)).source is not None
        self.peer.credit(REPLIES, 50)
        return self

    async def ask(self, operation: str, link: str | None = None, **body: Any) -> dict[str, Any]:
        """Do an operation, in the name of a link or of none; returns the map of the answer."""
        self._count += 1
        fields: dict[str, Any] = {
            "operation": f"com.microsoft:{operation}",
            "com.microsoft:server-timeout": Uint(59_998),
            "com.microsoft:tracking-id": str(uuid4()),
        }
        if link is not None:
            fields["associated-link-name"] = link
        given = {key.replace("_", "-"): value for key, value in body.items()}
        properties = MessageProperties(f"duplex1:2:3:{self._count}", reply_to=self._reply_to)
        message = AmqpMessage(properties, fields, given)
        self.peer.transfer(REQUESTS, encode_message(message), tag=b"", settled=True)
        transfer, payload = await self.peer.next(Transfer, handle=REPLIES)
        answer = decode_message(payload)
        assert transfer.settled
        assert answer.properties.correlation_id == properties.message_id
        told = answer.application_properties
        assert told["com.microsoft:tracking-id"] == fields["com.microsoft:tracking-id"]
        assert type(told["statusCode"]) is Int
        assert type(told["statusDescription"]) is str
        if told["statusCode"] not in (200, 204):
            raise Refused(int(told["statusCode"]), told)
        if told["statusCode"] == 204:
            return {}
        assert all(type(key) is str for key in answer.value)
        return dict(answer.value)


@asynccontextmanager
async def managing(bridge: Bridge, entity: str) -> AsyncIterator[Management]:
    """A connection to a bridge, with its management links."""
    peer = await (await Client.connect(bridge.port)).open()
    try:
        assert await peer.put_token(sas()) == 202
        yield await Management(peer, entity).open()
    finally:
        await peer.close()


def payload_of(body: bytes, **properties: Any) -> bytes:
    """A message with one data section."""
    fields = MessageProperties(**properties)
    whole = encode_message(AmqpMessage(fields))
    return whole[: whole.index(b"\x00\x53\x74")] + encode(Described(Ulong(0x75), body))


def scheduled(body: bytes, time_ms: int) -> dict[str, Any]:
    """An entry of a schedule-message request; an id that was not set is null."""
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(time_ms)}
    raw = encode(Described(Ulong(0x72), annotations)) + payload_of(body)
    return {"message": raw, "message-id": None, "partition-key": "p"}


async def send(peer: Client, entity: str, *payloads: bytes) -> None:
    """Send messages to an entity."""
    peer.attach(LINK + 1, entity, role=False)
    await peer.next(Attach, handle=LINK + 1)
    for payload in payloads:
        peer.transfer(LINK + 1, payload)
    for _ in payloads:
        await peer.next(Disposition)
    peer.send_detach(LINK + 1)
    await peer.next(Detach, handle=LINK + 1)


def items(value: Any, kind: str) -> tuple[Any, ...]:
    """The items of an array of this type, which .NET casts to one of its own."""
    assert isinstance(value, Array)
    assert value.type == kind
    return value.items


async def test_messages_are_scheduled_peeked_and_cancelled(bridge: Bridge) -> None:
    """Numbers are an array of long; nothing to peek is 204."""
    async with managing(bridge, "later") as management:
        assert await management.ask("peek-message", from_sequence_number=Long(1)) == {}
        at_ms = int(time.time() * 1000) + 600_000
        entries = [scheduled(body, at_ms) for body in (b"a", b"b")]
        answer = await management.ask("schedule-message", messages=entries)
        numbers = items(answer["sequence-numbers"], "long")
        asked = {"from_sequence_number": Long(0), "message_count": Int(10)}
        found = (await management.ask("peek-message", **asked))["messages"]
        assert type(found) is list
        assert [bytes(each["message"])[-1:] for each in found] == [b"a", b"b"]
        cancelled = {"sequence_numbers": Array("long", numbers)}
        await management.ask("cancel-scheduled-message", **cancelled)
        assert await management.ask("peek-message", **asked) == {}
        with pytest.raises(Refused) as refused:
            await management.ask("cancel-scheduled-message", **cancelled)
        assert refused.value.told == (404, "com.microsoft:message-not-found")


async def test_a_message_is_renewed_deferred_and_settled(bridge: Bridge) -> None:
    """The token of a lock is the delivery's tag, read as .NET reads a Guid."""
    async with managing(bridge, "deferred") as management:
        peer = management.peer
        await send(peer, "deferred", payload_of(b"a"))
        peer.attach(LINK, "deferred", role=True, name="receiver;1")
        await peer.next(Attach, handle=LINK)
        peer.credit(LINK, 1)
        transfer, payload = await peer.next(Transfer, handle=LINK)
        token = UUID(bytes_le=bytes(transfer.delivery_tag))
        now_ms = time.time() * 1000
        answer = await management.ask(
            "renew-lock", "receiver;1", lock_tokens=Array("uuid", (token,))
        )
        (until_ms,) = items(answer["expirations"], "timestamp")
        assert now_ms + 50_000 < until_ms < now_ms + 70_000
        outcome = Modified(None, True, {Symbol("why"): "later"})
        peer.send(Disposition(True, transfer.delivery_id, None, False, outcome))
        await peer.next(Disposition)

        found = (await management.ask("peek-message", from_sequence_number=Long(1)))["messages"]
        assert b"x-opt-locked-until" in payload
        number = int.from_bytes(_behind(found[0]["message"], b"x-opt-sequence-number"), "big")
        wanted = {
            "sequence_numbers": Array("long", (number,)),
            "receiver_settle_mode": Uint(1),
        }
        answer = await management.ask("receive-by-sequence-number", "receiver;1", **wanted)
        (entry,) = answer["messages"]
        assert type(entry["message"]) is bytes
        assert b"x-opt-locked-until" in entry["message"]
        assert type(entry["lock-token"]) is UUID
        settled = {
            "lock_tokens": Array("uuid", (entry["lock-token"],)),
            "disposition_status": "suspended",
            "deadletter_reason": "reason",
            "deadletter_description": "description",
            "properties_to_modify": {"attempt": Int(2)},
        }
        await management.ask("update-disposition", "receiver;1", **settled)
        with pytest.raises(Refused) as refused:
            await management.ask("update-disposition", "receiver;1", **settled)
        assert refused.value.told == (410, "com.microsoft:message-lock-lost")
        with pytest.raises(Refused) as refused:
            await management.ask("receive-by-sequence-number", "receiver;1", **wanted)
        assert refused.value.told == (404, "com.microsoft:message-not-found")


def _behind(raw: bytes, key: bytes) -> bytes:
    """The number behind an annotation: a long of eight bytes, or a small one of one."""
    at = raw.index(key) + len(key)
    return raw[at + 1 : at + (9 if raw[at] == 0x81 else 2)]


async def test_messages_are_deleted_in_batches(bridge: Bridge) -> None:
    """The preview of .NET (7.18.0-beta.1): a count and a time, answered with a count."""
    async with managing(bridge, "cleared") as management:
        await send(management.peer, "cleared", payload_of(b"a"), payload_of(b"b"))
        before = {"enqueued_time_utc": Timestamp(int(time.time() * 1000) + 60_000)}
        answer = await management.ask("batch-delete-messages", message_count=Int(4000), **before)
        assert type(answer["message-count"]) is Int
        assert answer["message-count"] == 2


async def test_a_session_has_a_lock_and_a_state(bridge: Bridge) -> None:
    """No state is null; every session that is in use is listed."""
    async with managing(bridge, "sessions") as management:
        peer = management.peer
        await send(peer, "sessions", payload_of(b"a", group_id="s"))
        name = "receiver;2"
        source = Source("sessions", filter={SESSION: None})
        peer.attach(LINK, "sessions", role=True, name=name, source=source)
        attach = await peer.next(Attach, handle=LINK)
        assert attach.source.filter[SESSION] == "s"
        now_ms = time.time() * 1000
        until_ms = (await management.ask("renew-session-lock", name, session_id="s"))["expiration"]
        assert type(until_ms) is Timestamp
        assert now_ms + 50_000 < until_ms < now_ms + 70_000
        for given in (None, b"\x00state", None):
            await management.ask("set-session-state", name, session_id="s", session_state=given)
            answer = await management.ask("get-session-state", name, session_id="s")
            assert answer["session-state"] == given
        page = {"skip": Int(0), "top": Int(100), "last_updated_time": Timestamp(LATEST_MS)}
        answer = await management.ask("get-message-sessions", **page)
        assert items(answer["sessions-ids"], "string") == ("s",)
        assert await management.ask("get-message-sessions", **{**page, "skip": Int(1)}) == {}


async def test_rules_are_added_enumerated_and_removed(bridge: Bridge) -> None:
    """Lists have the descriptors and the fields that .NET's codecs know."""
    async with managing(bridge, "events/Subscriptions/one") as management:
        nothing = dict.fromkeys(
            ("correlation-id", "message-id", "to", "reply-to", "session-id",
             "reply-to-session-id", "content-type")
        )  # fmt: skip
        exact = {**nothing, "label": "order", "properties": {"store": "s1", "count": Int(3)}}
        exact["properties"] |= {"total": Long(2**40), "small": Long(3), "price": PRICE}
        action = {"expression": "SET seen = TRUE"}
        for name, given, done in (
            ("large", {"sql-filter": {"expression": "quantity > 10"}}, action),
            ("none", {"sql-filter": {"expression": "1=0"}}, None),
            ("exact", {"correlation-filter": exact}, None),
        ):
            description = {**given, "sql-rule-action": done, "rule-name": name}
            await management.ask("add-rule", rule_name=name, rule_description=description)
        with pytest.raises(Refused) as refused:
            await management.ask("add-rule", rule_name="none", rule_description=description)
        assert refused.value.told == (409, "com.microsoft:entity-already-exists")

        answer = await management.ask("enumerate-rules", top=Int(100), skip=Int(0))
        assert type(answer["rules"]) is list
        rules = [listed(each["rule-description"], 0x13700000004) for each in answer["rules"]]
        assert [rule[2] for rule in rules] == ["$Default", "exact", "large", "none"]
        assert all(rule[3] is None or type(rule[3]) is Timestamp for rule in rules)
        everything, found, large, none = (rule[0] for rule in rules)
        listed(everything, 0x1370000007)
        listed(none, 0x1370000008)
        expression, level = listed(large, 0x1370000006)
        assert (expression, type(level)) == ("quantity > 10", Int)
        *fields, properties = listed(found, 0x1370000009)
        assert fields == [None, None, None, None, "order", None, None, None]
        assert properties == {
            "store": "s1", "count": 3, "total": 2**40, "small": 3, "price": PRICE
        }  # fmt: skip
        assert type(properties["count"]) is Int  # or a cast to int throws
        assert [type(properties[name]) for name in ("small", "price")] == [Long, Decimal128]
        expression, level = listed(rules[2][1], 0x13700000006)
        assert (expression, type(level)) == ("SET seen = TRUE", Int)
        assert [listed(rules[at][1], 0x13700000005) for at in (0, 1, 3)] == [[], [], []]

        for rule in rules:
            await management.ask("remove-rule", rule_name=rule[2])
        assert await management.ask("enumerate-rules", top=Int(100), skip=Int(0)) == {}
        with pytest.raises(Refused) as refused:
            await management.ask("remove-rule", rule_name="large")
        assert refused.value.told == (404, "amqp:not-found")


def listed(value: Any, code: int) -> list[Any]:
    """The fields of a list with this descriptor."""
    assert isinstance(value, Described)
    assert (type(value.descriptor), value.descriptor) == (Ulong, code)
    assert type(value.value) is list
    return list(value.value)


async def test_a_session_that_others_may_take_over_is_refused_as_unsupported(
    bridge: Bridge,
) -> None:
    """.NET goes by these words behind the link's name; others would blame the application."""
    async with managing(bridge, "sessions") as management:
        shared = Described(Ulong(0x137000000E), ["s", None])
        key = Symbol("com.microsoft:non-exclusive-session-filter")
        source = Source("sessions", filter={key: shared})
        management.peer.attach(LINK, "sessions", role=True, name="receiver;3", source=source)
        assert (await management.peer.next(Attach, handle=LINK)).source is None
        error = (await management.peer.next(Detach, handle=LINK)).error
        assert error.condition == "amqp:not-allowed"
        assert "contains invalid filter type" in error.description.rpartition("'")[2]
