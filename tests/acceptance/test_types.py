"""Every AMQP 1.0 type survives from one client to another, unchanged."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

from tests.acceptance.rest import KEY, KEY_NAME
from tests.acceptance.sdk import client_of, expect_silence, receive, take, unique
from tests.acceptance.wiretap import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Wiretap,
    wiretap,
)
from tests.fixtures.strange_values import send_strange

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

FOR_EVER = "P10675199DT2H48M5.4775807S"

ENTITIES: dict[str, dict[str, object]] = {
    "strange": {},
    "types": {"DefaultMessageTimeToLive": FOR_EVER},
}
"""With a TTL, creation time and absolute expiry time are the service's."""


def typed(kind: str, value: Any) -> dict[str, Any]:
    """A value that the client encodes with just this type."""
    return {"TYPE": kind, "VALUE": value}


SCALARS: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "ubyte": typed("UBYTE", 255),
    "byte": typed("BYTE", -128),
    "ushort": typed("USHORT", 65535),
    "short": typed("SHORT", -32768),
    "uint zero": typed("UINT", 0),
    "uint small": typed("UINT", 200),
    "uint": typed("UINT", 2**32 - 1),
    "int small": typed("INT", -5),
    "int": typed("INT", -(2**31)),
    "ulong zero": typed("ULONG", 0),
    "ulong small": typed("ULONG", 200),
    "ulong": typed("ULONG", 2**64 - 1),
    "long small": typed("LONG", -5),
    "long": typed("LONG", -(2**63)),
    "float": typed("FLOAT", 1.5),
    "double": typed("DOUBLE", 0.1),
    "float infinite": typed("FLOAT", math.inf),
    "double infinite": typed("DOUBLE", -math.inf),
    "timestamp": typed("TIMESTAMP", 1_795_226_000_123),
    "uuid": typed("UUID", UUID),
    "binary": typed("BINARY", b"\x00\xff\x80"),
    "binary long": typed("BINARY", bytes(range(256)) * 2),
    "string": typed("STRING", "ä☃\U0001f600"),
    "string empty": typed("STRING", ""),
    "string long": typed("STRING", "x" * 300),
    "symbol": typed("SYMBOL", b"a:symbol"),
}

COMPOUND: dict[str, Any] = {
    "list": typed("LIST", [1, "two", None, [3.0]]),
    "list empty": typed("LIST", []),
    "map": typed("MAP", {"a": 1, "b": {"c": None}}),
    "array": typed("ARRAY", [typed("LONG", 1), typed("LONG", 2**40)]),
    "described": typed("DESCRIBED", (typed("SYMBOL", b"my:type"), typed("STRING", "x"))),
    "described by ulong": typed("DESCRIBED", (typed("ULONG", 2**40), typed("LIST", [1]))),
}


@dataclass(frozen=True)
class Path:
    """A client whose bytes are watched."""

    client: ServiceBusClient
    tap: Wiretap


@contextmanager
def watched(bridge: Any) -> Iterator[Path]:
    """A client that reaches the bridge through a wiretap."""
    with wiretap(bridge.port) as tap:
        text = bridge.connection_string.replace(f":{bridge.port}", f":{tap.port}")
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            yield Path(client, tap)


Sections = dict[int, list[Any]]


def all_passed(
    bridge: Any, messages: Mapping[str, AmqpAnnotatedMessage]
) -> dict[str, tuple[Sections, Sections]]:
    """Send messages and receive them; return the sections of each as they left and came."""
    with watched(bridge) as path:
        with path.client.get_queue_sender("types") as sender:
            for name, message in messages.items():
                message.properties = AmqpMessageProperties(
                    **{**dict(message.properties or {}), "subject": name}
                )
                sender.send_messages(message)
        with path.client.get_queue_receiver("types") as receiver:
            take(receiver, len(messages))
        return {
            name: (
                path.tap.with_subject(path.tap.sent, name),
                path.tap.with_subject(path.tap.received, name),
            )
            for name in messages
        }


def passed(bridge: Any, **parts: Any) -> tuple[Sections, Sections]:
    """Send one message and receive it; return its sections as they left and as they came."""
    subject = unique("types")
    return all_passed(bridge, {subject: AmqpAnnotatedMessage(**parts)})[subject]


def test_application_properties(bridge: Any) -> None:
    """Application properties keep names, order, types and values."""
    left, came = passed(bridge, data_body=b"x", application_properties=dict(SCALARS))
    assert came[APPLICATION_PROPERTIES] == left[APPLICATION_PROPERTIES]
    assert came[DATA] == left[DATA]


def test_a_property_that_rabbitmq_cannot_hold(bridge: Any) -> None:
    """A NaN, over which RabbitMQ closes a connection, arrives, and so does what comes after it."""
    with client_of(bridge) as client:
        with client.get_queue_sender("types") as sender:
            sender.send_messages(
                ServiceBusMessage("odd", application_properties={"ratio": math.nan})
            )
            sender.send_messages(ServiceBusMessage("next"))
        with client.get_queue_receiver("types") as receiver:
            odd, following = take(receiver, 2)
    assert math.isnan(odd.application_properties[b"ratio"])
    assert (str(odd), str(following)) == ("odd", "next")


def test_decimals(bridge: Any) -> None:
    """The client has its decimals back, to the last digit, though it reads not what it writes.

    Received, peeked and received by number: in properties, and in the annotations of a message.
    """
    texts = ("0", "-0.00", "7", "79.90", "-42949672.96", "12345678901234567890.123456")
    wanted = {each.encode(): Decimal(each) for each in texts}
    message = AmqpAnnotatedMessage(
        data_body=b"x", application_properties=dict(wanted), annotations=dict(wanted)
    )
    with client_of(bridge) as client, client.get_queue_receiver("types") as receiver:
        with client.get_queue_sender("types") as sender:
            sender.send_messages(message)
        (found,) = receive(receiver)
        receiver.defer_message(found)
        (peeked,) = receiver.peek_messages(1, sequence_number=found.sequence_number or 0)
        (deferred,) = receiver.receive_deferred_messages(found.sequence_number or 0)
        receiver.complete_message(deferred)
    for each in (found, peeked, deferred):
        properties = dict(each.application_properties or {})
        annotations = dict(each.raw_amqp_message.annotations or {})
        for name, value in wanted.items():
            assert properties[name].as_tuple() == value.as_tuple()
            assert annotations[name].as_tuple() == value.as_tuple()


def test_a_decimal_that_dotnet_cannot_hold_is_refused(bridge: Any) -> None:
    """It would stop each .NET receiver of the queue; the condition says that the argument is it."""
    with client_of(bridge) as client, client.get_queue_sender("types") as sender:
        for value in (Decimal("1E+40"), Decimal("1E-29"), Decimal(2**96)):
            odd = ServiceBusMessage("odd", application_properties={"price": value})
            for refused in (odd, [ServiceBusMessage("good"), odd]):
                with pytest.raises(ServiceBusError, match="'price' is a decimal") as error:
                    sender.send_messages(refused)
                assert "com.microsoft:argument-error" in repr(error.value)
        with client.get_queue_receiver("types") as receiver:
            expect_silence(receiver)


def test_delivery_annotations(bridge: Any) -> None:
    """They are valid for one hop: the bridge takes them off what the client sends."""
    left, came = passed(bridge, data_body=b"x", delivery_annotations={"hop": 1})
    assert came[DATA] == left[DATA]


def test_value_bodies(bridge: Any) -> None:
    """A value body keeps its type and value, at any depth."""
    bodies: dict[str, Any] = {
        "all": [*SCALARS.values(), *COMPOUND.values()],
        "map": {**SCALARS, **COMPOUND},
        "true": True,
        "int": 5,
        "double": 0.5,
        "string": "x",
        "binary": b"\x00",
        "uuid": UUID,
        "described": (typed("ULONG", 2**40), typed("ULONG", 7)),
    }
    messages = {name: AmqpAnnotatedMessage(value_body=body) for name, body in bodies.items()}
    for name, (left, came) in all_passed(bridge, messages).items():
        assert came[VALUE] == left[VALUE], name
        assert DATA not in came, name


def test_sequence_body(bridge: Any) -> None:
    """A sequence body stays one, section by section."""
    rows = [[1, "two"], [], [None, {"k": typed("ULONG", 7)}]]
    left, came = passed(bridge, sequence_body=rows)
    assert len(left[SEQUENCE]) == 3
    assert came[SEQUENCE] == left[SEQUENCE]


def test_data_bodies(bridge: Any) -> None:
    """A data body keeps its sections and bytes."""
    bodies: dict[str, Any] = {
        "empty": b"",
        "one": [b"one"],
        "three": [b"one", b"", b"three"],
        "large": bytes(100_000),
    }
    messages = {name: AmqpAnnotatedMessage(data_body=body) for name, body in bodies.items()}
    for name, (left, came) in all_passed(bridge, messages).items():
        assert came[DATA] == left[DATA], name


def test_ids(bridge: Any) -> None:
    """Message and correlation ids keep their type: string, uuid, ulong or binary."""
    ids: dict[str, Any] = {
        "text": "text",
        "longest": "x" * 128,
        "uuid": UUID,
        "ulong": 2**60,
        "binary": b"\x00\x01",
    }
    messages = {
        name: AmqpAnnotatedMessage(
            data_body=b"x", properties={"message_id": value, "correlation_id": value}
        )
        for name, value in ids.items()
    }
    for name, (left, came) in all_passed(bridge, messages).items():
        (_, before), (_, after) = left[PROPERTIES][0], came[PROPERTIES][0]
        assert (after[0], after[5]) == (before[0], before[5]), name


def test_all_properties(bridge: Any) -> None:
    """Every field of the properties section survives."""
    left, came = passed(
        bridge,
        data_body=b"x",
        properties={
            "message_id": "id",
            "user_id": b"\x00me",
            "to": "there",
            "reply_to": "here",
            "correlation_id": "c",
            "content_type": "text/plain",
            "content_encoding": "utf-8",
            "creation_time": 1_795_226_000_123,
            "group_id": "g",
            "group_sequence": 7,
            "reply_to_group_id": "r",
        },
    )
    assert came[PROPERTIES] == left[PROPERTIES]


def test_header_annotations_and_footer(bridge: Any) -> None:
    """Priority and flags, the sender's own annotations and the footer survive."""
    left, came = passed(
        bridge,
        data_body=b"x",
        header={"priority": 7, "durable": False, "first_acquirer": False},
        annotations={b"x-opt-mine": typed("ULONG", 5), b"x-opt-partition-key": "k"},
        footer={b"x-foot": "y"},
    )
    (_, mine), (_, theirs) = left[HEADER][0], came[HEADER][0]
    assert (mine[0], mine[1], mine[3]) == (theirs[0], theirs[1], theirs[3])
    (_, mine), (_, theirs) = left[ANNOTATIONS][0], came[ANNOTATIONS][0]
    assert set(mine) <= set(theirs)
    assert came.get(FOOTER) == left.get(FOOTER)


def test_types_survive_abandon_and_dead_letter(bridge: Any) -> None:
    """Changing properties when abandoning or dead-lettering leaves all other types alone."""
    subject = unique("types")
    sent = AmqpAnnotatedMessage(
        properties={"subject": subject, "message_id": UUID},
        value_body=[typed("ULONG", 2**63)],
        application_properties=dict(SCALARS),
    )
    with client_of(bridge) as plain:
        with plain.get_queue_sender("types") as sender:
            sender.send_messages(sent)
        with plain.get_queue_receiver("types") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.dead_letter_message(message, reason="r", error_description="d")
    with watched(bridge) as path:
        with path.client.get_queue_receiver("types", sub_queue="deadletter") as dead:
            take(dead)
        came = path.tap.with_subject(path.tap.received, subject)
    assert came[VALUE] == [("list", (("ulong", 2**63),))]
    assert came[PROPERTIES][0][1][0] == ("uuid", UUID.bytes)
    (_, pairs) = came[APPLICATION_PROPERTIES][0]
    found = {key: value for (_, key), value in pairs}
    assert found[b"DeadLetterReason"] == ("string", b"r")
    assert found[b"ulong"] == ("ulong", 2**64 - 1)
    assert found[b"uuid"] == ("uuid", UUID.bytes)
    assert found[b"null"] == ("null", None)
    assert len(found) == len(SCALARS) + 2


STRANGE = (
    {b"letter": b"x", b"none": [], b"letters": [b"a", b"b"], b"last": b"!"},
    {b"initial": b"x", b"DeadLetterReason": 7, b"last": b"!"},
)


def shown(message: ServiceBusReceivedMessage) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
    """A message's body and properties, but for its price."""
    body = dict(message.raw_amqp_message.body)
    assert body.pop(b"price") is not None
    properties = dict(message.application_properties or {})
    assert message.raw_amqp_message.annotations is not None
    assert message.raw_amqp_message.annotations[b"x-initial"] == b"x"
    return body, properties


def test_a_message_with_values_that_this_client_cannot_read(bridge: Any) -> None:
    """It peeks it, receives it, and receives it by its number; what is behind it comes, too."""
    send_strange(bridge.port, "strange", KEY_NAME, KEY)
    with client_of(bridge) as client, client.get_queue_receiver("strange") as receiver:
        peeked = receiver.peek_messages(2)
        assert shown(peeked[0]) == STRANGE
        assert [b"".join(message.body) for message in peeked[1:]] == [b"next"]
        strange, plain = receive(receiver, 2)
        assert shown(strange) == STRANGE
        assert b"".join(plain.body) == b"next"
        receiver.complete_message(plain)
        receiver.defer_message(strange)
        assert strange.sequence_number is not None
        (again,) = receiver.receive_deferred_messages(strange.sequence_number)
        assert shown(again) == STRANGE
        receiver.complete_message(again)
