"""Messages over the REST API of Service Bus, alone and beside the real Python client.

Rules: the Service Bus REST reference (learn.microsoft.com/rest/api/servicebus): "Send Message",
"Send Message Batch", "Peek-Lock Message", "Receive and Delete Message", "Unlock Message", "Delete
Message", "Renew-Lock for a Message", "Message headers and properties".
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError

from tests.acceptance.rest import BATCH_TYPE, Answer, Rest, token
from tests.acceptance.sdk import client_of, expect_silence, now, receive, seconds, send, take
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, Any]] = {
    name: {"LockDuration": "PT1M"}
    for name in (
        "batch", "bodies", "dead", "forms", "from-sdk", "half", "large", "leaves",
        "locked", "left", "mixed", "names", "orders", "scheduled", "settle", "sized",
        "there/and/here", "wait",
    )
} | {
    name: {"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S"} for name in ("to-sdk", "ttl")
} | {
    "short": {"LockDuration": "PT5S"},
    "sessions": {"RequiresSession": True},
    "account": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
}  # fmt: skip
TOPICS = [
    {
        "Name": "events",
        "Subscriptions": [
            {
                "Name": "all",
                "Rules": [
                    {
                        "Name": "red",
                        "Properties": {
                            "FilterType": "Sql",
                            "SqlFilter": {"SqlExpression": "colour = 'red' AND size > 3"},
                        },
                    }
                ],
            }
        ],
    }
]

KEYS = {"sender": "key-of-sender", "listener": "key-of-listener", "one": "key-of-one"}
RULES = [
    {"name": "RootManageSharedAccessKey", "primaryKey": "SAS_KEY_VALUE",
     "rights": ["Send", "Listen", "Manage"]},
    {"name": "sender", "primaryKey": KEYS["sender"], "rights": ["Send"]},
    {"name": "listener", "primaryKey": KEYS["listener"], "rights": ["Listen"]},
    {"name": "one", "primaryKey": KEYS["one"], "rights": ["Send", "Listen"], "scope": "orders"},
]  # fmt: skip


@pytest.fixture
def rest(bridge: Any) -> Rest:
    """A client with all rights."""
    return Rest(bridge)


def test_a_message_is_sent_locked_and_deleted(rest: Rest) -> None:
    """As in the reference's examples, field by field."""
    sent = rest.send(
        "orders",
        "This is a message.",
        {"Label": "M1", "State": "Active", "TimeToLive": 600},
        Content_Type="text/plain",
        Priority="High",
        Customer="12345,ABC",
    )
    assert (sent.status, sent.body, sent.headers["Content-Type"]) == (201, b"", "text/plain")

    locked = rest.lock("orders")
    assert (locked.status, locked.body) == (201, b"This is a message.")
    assert locked.headers["Content-Type"] == "text/plain"
    assert (locked.headers["Priority"], locked.headers["Customer"]) == ('"High"', '"12345,ABC"')
    broker = locked.broker
    assert {name: broker[name] for name in ("DeliveryCount", "Label", "State", "TimeToLive")} == {
        "DeliveryCount": 1,
        "Label": "M1",
        "State": "Active",
        "TimeToLive": 600,
    }
    number, lock_token = broker["SequenceNumber"], broker["LockToken"]
    assert locked.headers["Location"] == (
        f"http://localhost:{rest.bridge.port}/orders/messages/{number}/{lock_token}"
    )
    left = parsedate_to_datetime(broker["LockedUntilUtc"]) - datetime.now(UTC)
    assert timedelta(seconds=20) < left <= timedelta(seconds=60)
    assert abs(parsedate_to_datetime(broker["EnqueuedTimeUtc"]) - datetime.now(UTC)) < seconds(60)
    assert broker["EnqueuedSequenceNumber"] == 0

    assert rest.lock("orders", 0).status == 204
    assert rest.ask("DELETE", locked.place).status == 200
    assert rest.ask("DELETE", locked.place).status == 404
    assert rest.lock("orders", 0).status == 204


def test_an_unlocked_message_comes_again_and_counts(rest: Rest) -> None:
    """By number or by id in front of the token; the third time it is received and deleted."""
    assert rest.send("settle", "again", {"MessageId": "an/id ü"}).status == 201
    first = rest.lock("settle")
    assert rest.ask("PUT", first.place).status == 200
    second = rest.lock("settle")
    by_id = f"/settle/messages/an%2Fid%20%C3%BC/{second.broker['LockToken']}"
    assert second.broker["MessageId"] == "an/id ü"
    assert rest.ask("PUT", by_id).status == 200
    third = rest.take("settle")

    counts = [each.broker["DeliveryCount"] for each in (first, second, third)]
    assert (third.status, counts) == (200, [1, 2, 3])
    assert {"LockToken", "LockedUntilUtc"}.isdisjoint(third.broker)
    assert "Location" not in third.headers
    assert rest.take("settle", 0).status == 204


def test_a_lock_ends_unless_it_is_renewed(rest: Rest) -> None:
    """A renewal by HTTP holds it; then it ends, what is asked is 404, and the message comes."""
    rest.send("short", "held")
    locked = rest.lock("short")
    until = parsedate_to_datetime(locked.broker["LockedUntilUtc"])
    while datetime.now(UTC) < until + seconds(3):
        assert rest.ask("POST", locked.place).status == 200
        time.sleep(1)
    again = rest.lock("short", 60)

    assert (again.status, again.body, again.broker["DeliveryCount"]) == (201, b"held", 2)
    for method in ("POST", "PUT", "DELETE"):
        assert rest.ask(method, locked.place).status == 404
    assert rest.ask("DELETE", again.place).status == 200


def test_the_sdk_reads_what_was_sent_by_rest(bridge: Any, rest: Rest) -> None:
    """Every property, each with the type of its JSON."""
    sent = rest.send(
        "to-sdk",
        b"\x00\xff",
        {
            "CorrelationId": "c-1", "Label": "subject", "MessageId": "m-1", "PartitionKey": "s-1",
            "ReplyTo": "answers", "ReplyToSessionId": "rs-1", "SessionId": "s-1",
            "TimeToLiveTimeSpan": "1.02:03:04.5", "To": "somewhere", "Unknown": [1], "Label2": 3,
        },
        Content_Type="application/x-own",
        text='"quoted \\"ü\\""', plain="High", whole="42", long="9876543210", real="1.5",
        truth="true", nothing="null", list="[1]", X_Own_Name='"x"', date_like='"Sun, 06 Nov 1994"',
    )  # fmt: skip
    assert sent.status == 201, sent
    with client_of(bridge) as client, client.get_queue_receiver("to-sdk") as receiver:
        (message,) = take(receiver)

    assert b"".join(message.body) == b"\x00\xff"
    assert (message.message_id, message.correlation_id) == ("m-1", "c-1")
    assert (message.subject, message.to, message.reply_to) == ("subject", "somewhere", "answers")
    assert (message.session_id, message.reply_to_session_id) == ("s-1", "rs-1")
    assert message.partition_key == "s-1"
    assert message.content_type == "application/x-own"
    assert message.time_to_live == timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert {
        name.decode(): value.decode() if isinstance(value, bytes) else value
        for name, value in message.application_properties.items()
    } == {
        "text": 'quoted "ü"', "plain": "High", "whole": 42, "long": 9876543210, "real": 1.5,
        "truth": True, "nothing": None, "list": "[1]", "X-Own-Name": "x",
        "date-like": "Sun, 06 Nov 1994",
    }  # fmt: skip


def test_rest_reads_what_the_sdk_sent(bridge: Any, rest: Rest) -> None:
    """Text in quotation marks, numbers without, times in HTTP's form."""
    an_id, a_time = uuid.uuid4(), datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    properties = {
        "text": 'a "ü"\r\nb', "whole": 42, "real": 1.5, "truth": False,
        "id": an_id, "time": a_time,
    }  # fmt: skip
    message = ServiceBusMessage(
        "hello ü", application_properties=properties, message_id="m-2", correlation_id="c-2",
        subject="s", to="t", reply_to="r", reply_to_session_id="rs", session_id="i",
        partition_key="i", content_type="application/json", time_to_live=seconds(90),
    )  # fmt: skip
    with client_of(bridge) as client:
        send(client, "from-sdk", message)
    found = rest.take("from-sdk")

    assert (found.status, found.body.decode()) == (200, "hello ü")
    assert found.headers["Content-Type"] == "application/json"
    broker = found.broker
    for name in ("SequenceNumber", "EnqueuedTimeUtc"):
        assert broker.pop(name)
    assert broker == {
        "CorrelationId": "c-2", "DeliveryCount": 1, "EnqueuedSequenceNumber": 0, "Label": "s",
        "MessageId": "m-2", "PartitionKey": "i", "ReplyTo": "r", "ReplyToSessionId": "rs",
        "SessionId": "i", "State": "Active", "TimeToLive": 90, "To": "t",
    }  # fmt: skip
    assert found.custom == properties | {
        "id": str(an_id),
        "time": format_datetime(a_time, usegmt=True),
    }


def test_names_that_http_does_not_take(bridge: Any, rest: Rest) -> None:
    """They are percent-encoded, and none of them changes the answer itself."""
    names = ["a b", "ü", "Content-Length", "location", "BrokerProperties", "x:y", "same", "Same"]
    message = ServiceBusMessage("x", application_properties=dict.fromkeys(names, 1))
    with client_of(bridge) as client:
        send(client, "names", message)
    found = rest.take("names")

    assert (found.status, found.body) == (200, b"x")
    assert sorted(found.custom) == sorted([
        "a%20b", "%C3%BC", "%43ontent-Length", "%6Cocation", "%42rokerProperties", "x%3Ay", "same",
        "Same",
    ])  # fmt: skip


def test_bodies_of_any_kind(bridge: Any, rest: Rest) -> None:
    """A text and several parts as bytes; another value as JSON, as no client can be without it."""
    bodies = [
        ({"value_body": "text"}, b"text"),
        ({"value_body": {"a": [1, None, True]}}, b'{"a": [1, null, true]}'),
        ({"value_body": None}, b""),
        ({"data_body": [b"one", b"two"]}, b"onetwo"),
        ({"sequence_body": [[1, "x"]]}, b'[1, "x"]'),
    ]
    with client_of(bridge) as client, client.get_queue_sender("bodies") as sender:
        for body, _ in bodies:
            sender.send_messages(AmqpAnnotatedMessage(**body))

    assert [rest.take("bodies").body for _ in bodies] == [expected for _, expected in bodies]


def test_a_batch_of_a_hundred(bridge: Any, rest: Rest) -> None:
    """It is stored whole, in order, with the properties of each message."""
    messages = [
        {
            "Body": f"ü {number}",
            "BrokerProperties": {"MessageId": f"b-{number}", "TimeToLiveTimeSpan": "0.00:10:00"},
            "UserProperties": {"number": number, "text": "x", "truth": True},
        }
        for number in range(100)
    ]
    assert rest.send_batch("batch", messages).status == 201
    with client_of(bridge) as client, client.get_queue_receiver("batch") as receiver:
        found = take(receiver, 100)

    assert [(str(each), each.message_id) for each in found] == [
        (f"ü {number}", f"b-{number}") for number in range(100)
    ]
    first = found[7].application_properties
    assert first == {b"number": 7, b"text": b"x", b"truth": True}
    assert found[7].time_to_live == timedelta(minutes=10)


@pytest.mark.parametrize(
    "batch",
    [
        b"{}", b"[]", b"[1]", b"nonsense", b'[{"Body": 1}]', b'[{"Body": "x"}, {"Body": "y"',
        b'[{"Body": "x", "BrokerProperties": []}]', b'[{"UserProperties": {"a": {}}}]',
        b'[{"Body": "good"}, {"Body": "x", "BrokerProperties": {"TimeToLive": 0}}]',
        b'[{"Body": NaN}]', b"[" * 100_000, b'[{"Body": "\\ud800"}]',
    ],
)  # fmt: skip
def test_a_malformed_batch_is_refused_whole(rest: Rest, batch: bytes) -> None:
    """With 400, and nothing of it is stored."""
    refused = rest.ask(
        "POST", "/forms/messages", batch, Content_Type="application/vnd.microsoft.servicebus.json"
    )
    assert refused.status == 400
    assert b"<Error><Code>400</Code><Detail>" in refused.body
    assert rest.take("forms", 0).status == 204


@pytest.mark.parametrize(
    "properties",
    [
        "nonsense", "[]", '{"MessageId": 1}', '{"TimeToLive": "x"}', '{"TimeToLive": -1}',
        '{"ScheduledEnqueueTimeUtc": "yesterday"}', '{"MessageId": "%s"}' % ("x" * 129),
        '{"SessionId": "a", "PartitionKey": "b"}', '{"TimeToLiveTimeSpan": "1 day"}',
    ],
)  # fmt: skip
def test_malformed_broker_properties_are_refused(rest: Rest, properties: str) -> None:
    """With 400, and nothing is stored."""
    refused = rest.ask("POST", "/forms/messages", b"x", BrokerProperties=properties)
    assert (refused.status, refused.headers["Content-Type"]) == (
        400,
        "application/xml; charset=utf-8",
    )
    assert rest.take("forms", 0).status == 204


def test_properties_beyond_a_message_s_limit_are_refused(rest: Rest) -> None:
    """By the rule of messages that come over AMQP, and in words of ours; nothing is stored."""
    refused = rest.send("forms", "x", Notes="x" * 125_000)

    assert refused.status == 400
    assert b"properties" in refused.body
    assert rest.take("forms", 0).status == 204


def test_a_scheduled_message_comes_at_its_time(rest: Rest) -> None:
    """ScheduledEnqueueTimeUtc in HTTP's form, and in ISO 8601."""
    at = now().replace(microsecond=0) + seconds(6)
    for text in (format_datetime(at, usegmt=True), at.isoformat().replace("+00:00", "Z")):
        assert rest.send("scheduled", text, {"ScheduledEnqueueTimeUtc": text}).status == 201
    for _ in range(2):
        found = rest.take("scheduled")
        assert found.status == 200
        assert datetime.now(UTC) >= at
        assert found.broker["ScheduledEnqueueTimeUtc"] == format_datetime(at, usegmt=True)


def test_a_message_lives_as_long_as_it_says(rest: Rest) -> None:
    """TimeToLive in seconds with a fraction; the longest one is 'for ever'."""
    rest.send("ttl", "short", {"TimeToLive": 1.5})
    rest.send("ttl", "long", {"TimeToLive": 922337203685.47754})
    rest.send("ttl", "years", {"TimeToLive": 3 * 365 * 86_400})
    time.sleep(2)

    long, years = rest.take("ttl"), rest.take("ttl")
    assert (long.body, long.broker["TimeToLive"]) == (b"long", 922337203685.47754)
    assert (years.body, years.broker["TimeToLive"]) == (b"years", 3 * 365 * 86_400)


def test_a_topic_and_its_subscription(rest: Rest) -> None:
    """A property's type counts for a filter; a subscription is read and settled by its path."""
    for colour, size in (("red", "2"), ("red", "4"), ("blue", "5")):
        sent = rest.send("events", "x", colour=colour, size=size)
        assert sent.status == 201, sent.body
    locked = rest.lock("events/Subscriptions/all")

    assert (locked.status, locked.custom) == (201, {"colour": "red", "size": 4})
    assert "/events/subscriptions/all/messages/" in locked.place
    assert rest.ask("DELETE", locked.place).status == 200
    assert rest.lock("events/subscriptions/all", 0).status == 204
    assert rest.send("events/subscriptions/all", "x").status == 400
    assert rest.lock("events", 0).status == 410


def test_a_dead_letter_queue(bridge: Any, rest: Rest) -> None:
    """It is received from and settled by its path; why a message is there is in its properties."""
    with client_of(bridge) as client:
        send(client, "dead", "bad")
        with client.get_queue_receiver("dead") as receiver:
            (message,) = receive(receiver)
            receiver.dead_letter_message(message, reason="mine", error_description="why")
    locked = rest.lock("dead/$DeadLetterQueue")

    assert (locked.status, locked.body) == (201, b"bad")
    assert locked.custom == {"DeadLetterReason": "mine", "DeadLetterErrorDescription": "why"}
    assert rest.ask("DELETE", locked.place).status == 200
    assert rest.take("dead/$deadletterqueue", 0).status == 204
    assert rest.send("dead/$deadletterqueue", "x").status == 400


def test_a_name_with_slashes(rest: Rest) -> None:
    """The words of the path are read from its end."""
    assert rest.send("there/and/here", "x").status == 201
    locked = rest.lock("There/And/Here")
    assert rest.ask("DELETE", locked.place).status == 200


def test_sessions_are_refused_by_name(rest: Rest) -> None:
    """Over HTTP Azure sends into sessions, and receives from none."""
    assert rest.send("sessions", "x", {"SessionId": "s"}).status == 201
    assert rest.send("sessions", "x").status == 400
    for refused in (rest.lock("sessions", 0), rest.take("sessions", 0)):
        assert refused.status == 400
        assert b"entity that requires sessions to create a non-sessionful" in refused.body


def test_what_does_not_exist(rest: Rest) -> None:
    """An entity is 410, a lock is 404, another verb is not the API's."""
    nobody = f"/nobody/messages/1/{uuid.uuid4()}"
    asked = [rest.send("nobody", "x"), rest.lock("nobody", 0), rest.take("nobody", 0)]
    asked += [rest.ask(method, nobody) for method in ("POST", "PUT", "DELETE")]
    assert [each.status for each in asked] == [410] * 6
    assert b"<Code>410</Code>" in asked[0].body
    assert rest.ask("POST", "/orders/messages/1/no-token").status == 404
    assert rest.ask("DELETE", f"/orders/messages/1/{uuid.uuid4()}").status == 404
    assert rest.ask("POST", "/orders/messages/head?timeout=soon").status == 400
    assert rest.ask("POST", "/orders/$management/messages", b"x").status == 400
    assert rest.ask("POST", "/orders").status == 400


def test_a_lock_is_its_entity_s(rest: Rest) -> None:
    """A token is worth nothing at another entity, and the lock stays."""
    rest.send("locked", "x")
    locked = rest.lock("locked")
    other = locked.place.replace("/locked/", "/orders/")
    assert rest.ask("DELETE", other).status == 404
    assert rest.ask("DELETE", locked.place).status == 200


def test_an_http_lock_is_settled_by_whoever_has_its_token(bridge: Any, rest: Rest) -> None:
    """It outlives its connection, and hides the message from the SDK's receivers."""
    rest.send("mixed", "x")
    locked = rest.lock("mixed")
    with client_of(bridge) as client, client.get_queue_receiver("mixed") as receiver:
        expect_silence(receiver)
        assert rest.ask("PUT", locked.place).status == 200
        (message,) = receive(receiver)
        assert message.delivery_count == 1
        place = f"/mixed/messages/{message.sequence_number}/{message.lock_token}"
        assert rest.ask("DELETE", place).status == 200
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)


def test_a_lock_of_another_bridge(start_bridge: Any, bridge: Any, config: Path) -> None:
    """It is renewed, unlocked and deleted at whichever bridge the request arrives."""
    one = start_bridge(config=config)
    two = start_bridge(config=config)
    here, there = Rest(one), Rest(two)
    here.send("orders", "x")
    locked = here.lock("orders")
    assert there.ask("POST", locked.place).status == 200
    assert there.ask("PUT", locked.place).status == 200
    again = there.lock("orders")
    assert (again.status, again.broker["DeliveryCount"]) == (201, 2)
    assert here.ask("DELETE", again.place).status == 200
    assert there.lock("orders", 0).status == 204


def test_a_wait_ends_with_a_message_or_with_its_time(rest: Rest) -> None:
    """204 at the end of `timeout`; a message that comes before is answered at once."""
    began = time.monotonic()
    assert rest.lock("wait", 2).status == 204
    assert time.monotonic() - began >= 2
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(rest.take, "wait", 60) for _ in range(20)]
        for number in range(20):
            assert rest.send("wait", str(number)).status == 201
        found = [each.result() for each in waiting]
    assert sorted(int(each.body) for each in found) == list(range(20))


def request(rest: Rest, method: str, path: str, *fields: str) -> bytes:
    """Return a request as raw bytes."""
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {token(rest.bridge)}"]
    return "\r\n".join([*head, *fields, "", ""]).encode()


def leave(connection: socket.socket) -> None:
    """Hang up with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_who_leaves_while_waiting_takes_nothing(rest: Rest, method: str) -> None:
    """A message that is sent later goes to the next client, uncounted."""
    for number in range(5):
        connection = socket.create_connection(("localhost", rest.bridge.port))
        connection.sendall(request(rest, method, "/leaves/messages/head?timeout=60"))
        time.sleep(0.3)
        leave(connection)
        rest.send("leaves", f"{number}")
        found = rest.take("leaves")
        assert (found.body, found.broker["DeliveryCount"]) == (str(number).encode(), 1)


def test_who_leaves_before_a_large_answer_is_written_has_taken_nothing(rest: Rest) -> None:
    """The message is not deleted before all of its answer is in the connection's output.

    What the kernel's buffers hold is output. Linux makes them a multiple of the segment's size, so
    with small segments they are too small for an answer.
    """
    body = b"x" * 250_000
    for _ in range(10):
        assert rest.send("left", body).status == 201
    for _ in range(10):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        connection.connect(("localhost", rest.bridge.port))
        connection.sendall(request(rest, "DELETE", "/left/messages/head?timeout=60"))
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        leave(connection)
    found = [rest.take("left") for _ in range(10)]

    assert [each.status for each in found] == [200] * 10
    assert {each.broker["DeliveryCount"] for each in found} == {1}
    assert {each.body for each in found} == {body}
    assert rest.take("left", 0).status == 204


def half_closed(rest: Rest, *said: bytes) -> bytes:
    """Say this, end the own side of the connection, and return all that is answered."""
    with socket.create_connection(("localhost", rest.bridge.port)) as connection:
        connection.settimeout(120)
        for part in said:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_client_that_sends_no_more_has_its_answers(rest: Rest) -> None:
    """As `nc -N`: without an answer it would send again, and the message would be there twice."""
    for number in range(20):
        head = request(rest, "POST", "/half/messages", "Content-Length: 2")
        assert half_closed(rest, head + b"%02d" % number).startswith(b"HTTP/1.1 201 ")
    two = request(rest, "POST", "/half/messages", "Content-Length: 1") + b"x"
    assert half_closed(rest, two, two, two).count(b"HTTP/1.1 201 ") == 3

    found = [rest.take("half").body for _ in range(23)]
    assert sorted(found) == sorted([b"%02d" % number for number in range(20)] + [b"x"] * 3)
    assert rest.take("half", 0).status == 204


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_a_client_that_sends_no_more_receives_nothing(rest: Rest, method: str) -> None:
    """It cannot be told from one that has left: it is told so, and the message stays."""
    for path in ("half?timeout=60", "half?timeout=0"):
        rest.send("half", path)
        entity, _, query = path.partition("?")
        said = request(rest, method, f"/{entity}/messages/head?{query}")
        answer = half_closed(rest, said)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"its side of the connection open" in answer
        found = rest.take("half")
        assert (found.body, found.broker["DeliveryCount"]) == (path.encode(), 1)


def test_half_a_body_is_no_message(rest: Rest) -> None:
    """A client that ends in the middle has no answer, and nothing is stored."""
    head = request(rest, "POST", "/half/messages", "Content-Length: 100")
    assert half_closed(rest, head, b"x" * 50) == b""
    assert rest.take("half", 0).status == 204


def test_a_number_beyond_a_double_keeps_its_digits(rest: Rest) -> None:
    """It is text, as whole numbers beyond 64 bits are; as a time to live it is refused."""
    assert rest.send("forms", "a", Huge="1e999", Small="-1.5e3").status == 201
    batch = [{"Body": "b", "UserProperties": {"Huge": 0, "Small": -1500}}]
    content = json.dumps(batch).replace('"Huge": 0', '"Huge": 1e999').encode()
    assert rest.ask("POST", "/forms/messages", content, Content_Type=BATCH_TYPE).status == 201
    for _ in range(2):
        assert rest.take("forms").custom == {"Huge": "1e999", "Small": -1500}
    refused = rest.ask("POST", "/forms/messages", b"c", BrokerProperties='{"TimeToLive": 1e999}')
    assert refused.status == 400


def test_a_body_within_the_limit(bridge: Any, rest: Rest) -> None:
    """The entity's limit is the API's: 403 above it, whether or not the length is said."""
    body = b"x" * 255_000
    assert rest.send("large", body).status == 201
    assert rest.take("large").body == body
    for content in (b"x" * 262_145, iter([b"x" * 65_536] * 5)):
        refused = rest.ask("POST", "/large/messages", content)
        assert refused.status == 403
        assert b"exceeds the limit (262144 bytes)" in refused.body
    assert rest.take("large", 0).status == 204


def test_a_first_request_with_a_large_body_in_one_piece(rest: Rest) -> None:
    """A token is checked before the body: what comes with its head is not too much."""
    body = b"x" * 255_000
    said = request(rest, "POST", "/sized/messages", f"Content-Length: {len(body)}") + body
    for _ in range(5):
        with socket.create_connection(("localhost", rest.bridge.port)) as connection:
            connection.settimeout(120)
            connection.sendall(said)
            assert connection.recv(4_096).startswith(b"HTTP/1.1 201 ")
        assert rest.take("sized").body == body


def test_expect_100_continue_and_many_requests_on_one_connection(rest: Rest) -> None:
    """As curl and .NET ask."""
    with socket.create_connection(("localhost", rest.bridge.port)) as connection:
        connection.settimeout(120)
        lines = ("Content-Length: 2", "Expect: 100-continue")
        for number in range(3):
            connection.sendall(request(rest, "POST", "/sized/messages", *lines))
            assert connection.recv(4_096).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b"m%d" % number)
            assert connection.recv(4_096).startswith(b"HTTP/1.1 201 ")
    assert [rest.take("sized").body for _ in range(3)] == [b"m0", b"m1", b"m2"]


def test_rights(start_bridge: Any, config: Path, tmp_path: Path) -> None:
    """Send sends, Listen receives and settles; a wrong, expired or other token does neither."""
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": RULES}))
    bridge = start_bridge("--auth", str(rules), config=config)

    def who(name: str, path: str = "", **more: Any) -> Rest:
        return Rest(bridge, token(bridge, path, name=name, **{"key": KEYS.get(name, "x"), **more}))

    def said(answer: Answer) -> tuple[int, str]:
        return answer.status, answer.body.decode().partition("<Detail>")[2].partition(" ")[0]

    sender, listener = who("sender"), who("listener")
    assert sender.send("orders", "x").status == 201
    assert said(sender.lock("orders", 0)) == (401, "Unauthorized")
    assert said(sender.take("orders", 0)) == (401, "Unauthorized")
    assert said(listener.send("orders", "x")) == (401, "Unauthorized")
    locked = listener.lock("orders")
    assert locked.status == 201
    for method in ("POST", "PUT", "DELETE"):
        assert said(sender.ask(method, locked.place)) == (401, "Unauthorized")
    assert listener.ask("DELETE", locked.place).status == 200

    assert who("one", "orders").send("orders", "x").status == 201
    assert who("one", "orders").send("settle", "x").status == 401
    assert who("sender", "orders").send("settle", "x").status == 401
    assert said(who("sender", key="wrong").send("orders", "x")) == (401, "40103:")
    assert said(who("sender", for_s=-1).send("orders", "x")) == (401, "40106:")
    assert said(Rest(bridge, "nonsense").send("orders", "x")) == (401, "40105:")
    assert said(Rest(bridge, "Bearer e30").send("orders", "x")) == (401, "40105:")
    assert listener.take("orders").body == b"x"
    assert listener.take("orders", 0).status == 204


def test_a_stop_answers_those_who_wait(start_bridge: Any, config: Path) -> None:
    """With 503, at once, so that they ask another bridge."""
    bridge = start_bridge(config=config)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(Rest(bridge).lock, "wait", 60) for _ in range(3)]
        time.sleep(2)
        bridge.stop()
        assert [each.result().status for each in waiting] == [503] * 3


@pytest.mark.long
def test_the_account_of_rest_and_sdk_together(bridge: Any, rest: Rest) -> None:
    """Clients of both kinds settle, fail, leave and time out: each id ends in exactly one place.

    Poison is unlocked or abandoned by whoever gets it, until MaxDeliveryCount moves it.
    """
    ids = [f"{'poison' if number % 10 == 0 else 'good'}-{number}" for number in range(200)]
    done: list[str] = []
    dead: list[str] = []
    is_over = threading.Event()

    def by_rest(seed: int) -> None:
        turn = seed
        while not is_over.is_set():
            turn += 1
            if turn % 5 == 0:  # leaves while it waits, or with a lock that then ends by itself
                connection = socket.create_connection(("localhost", rest.bridge.port))
                connection.sendall(request(rest, "POST", "/account/messages/head?timeout=5"))
                time.sleep(0.02 * (turn % 4))
                leave(connection)
                continue
            locked = rest.lock("account", 1)
            if locked.status == 204:
                continue
            message_id = locked.broker["MessageId"]
            if message_id.startswith("poison"):
                rest.ask("PUT", locked.place)
            elif turn % 7 and rest.ask("DELETE", locked.place).status == 200:
                done.append(message_id)

    def by_sdk() -> None:
        with client_of(bridge) as client:
            while not is_over.is_set():
                with client.get_queue_receiver("account") as receiver:
                    for message in receiver.receive_messages(5, max_wait_time=1):
                        with suppress(MessageLockLostError):
                            if message.message_id.startswith("poison"):
                                receiver.abandon_message(message)
                            else:
                                receiver.complete_message(message)
                                done.append(message.message_id)

    def is_all_there() -> bool:
        while (letter := rest.take("account/$deadletterqueue", 0)).status == 200:
            dead.append(letter.broker["MessageId"])
        return len(done) + len(dead) >= len(ids)

    with ThreadPoolExecutor() as pool:
        workers = [pool.submit(by_rest, seed) for seed in range(3)]
        workers += [pool.submit(by_sdk) for _ in range(2)]
        try:
            with client_of(bridge) as client, client.get_queue_sender("account") as sender:
                for at in range(0, len(ids), 20):
                    half = [
                        {"Body": each, "BrokerProperties": {"MessageId": each}}
                        for each in ids[at : at + 10]
                    ]
                    assert rest.send_batch("account", half).status == 201
                    rest_of_it = ids[at + 10 : at + 20]
                    sender.send_messages(
                        [ServiceBusMessage(each, message_id=each) for each in rest_of_it]
                    )
            eventually(is_all_there, within_s=240)
        finally:
            is_over.set()
        for worker in workers:
            worker.result()

    assert sorted(done + dead) == sorted(ids)
    assert {each.partition("-")[0] for each in done} == {"good"}
    assert sum(each.startswith("poison") for each in dead) == 20
    assert rest.lock("account", 6).status == 204
