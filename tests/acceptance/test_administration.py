"""The administration API, by Python's real administration client over HTTPS."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AuthorizationRule,
    EntityStatus,
    QueueProperties,
    ServiceBusAdministrationClient,
)

from tests.acceptance.sdk import client_of, receive, send, take, unique
from tests.fixtures.administration import KEY, connection_string
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

ENTITIES = {"orders": {"LockDuration": "PT30S", "MaxDeliveryCount": 10}}

FOR_EVER = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)


@pytest.fixture
def name(admin: ServiceBusAdministrationClient) -> Iterator[str]:
    """A name; the queue of it is deleted at the end."""
    chosen = unique("q")
    yield chosen
    for each in admin.list_queues():
        if each.name.startswith(chosen):
            admin.delete_queue(each.name)


def test_a_queue_is_made_with_every_property_and_read_back(
    admin: ServiceBusAdministrationClient, name: str, admin_port: int
) -> None:
    """Each is kept, whether or not it has an effect yet; durations are those that were given."""
    given: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7, seconds=1),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(days=2, milliseconds=5),
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": False,
        "enable_partitioning": False,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": False,
        "user_metadata": "<who & why>",
    }
    target = f"{name}-target"
    admin.create_queue(target)
    began = datetime.now(UTC) - timedelta(seconds=1)
    made = admin.create_queue(
        name, forward_to=target, forward_dead_lettered_messages_to=target, **given
    )
    read = admin.get_queue(name)

    for queue in (made, read):
        assert {key: getattr(queue, key) for key in given} == given
        assert queue.name == name
        assert queue.status == EntityStatus.ACTIVE
        assert queue.forward_to == f"sb://localhost:{admin_port}/{target}"
        assert queue.forward_dead_lettered_messages_to == f"sb://localhost:{admin_port}/{target}"
        assert queue.availability_status == "Available"
        assert queue.max_message_size_in_kilobytes == 256
        assert queue.authorization_rules in (None, [])
    facts = admin.get_queue_runtime_properties(name)
    assert began < facts.created_at_utc <= facts.updated_at_utc < datetime.now(UTC)
    assert facts.total_message_count == facts.active_message_count == facts.size_in_bytes == 0


def test_a_queue_of_defaults_has_those_of_the_service(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    """A queue of which only the name is given has Service Bus's defaults."""
    made = admin.create_queue(name)

    assert (made.lock_duration, made.max_delivery_count) == (timedelta(minutes=1), 10)
    assert (made.default_message_time_to_live, made.auto_delete_on_idle) == (FOR_EVER, FOR_EVER)
    assert made.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (made.max_size_in_megabytes, made.enable_batched_operations) == (1024, True)


def test_a_new_queue_takes_messages_at_once(
    admin: ServiceBusAdministrationClient, bridge: Bridge, name: str
) -> None:
    """No wait between the answer and the first send; names with slashes and in any case."""
    path = f"{name}/with/Slashes"
    admin.create_queue(path)
    with client_of(bridge) as client:
        send(client, path, "hello")
        with client.get_queue_receiver(path.upper()) as receiver:
            (message,) = take(receiver)
    assert str(message) == "hello"
    assert admin.get_queue(path.lower()).max_delivery_count == 10
    assert path in [each.name for each in admin.list_queues()]


def test_names_are_taken_once(admin: ServiceBusAdministrationClient, name: str) -> None:
    """409 in Azure's words, whatever the case; of eight at once one makes it."""

    def create(number: int) -> str:
        try:
            admin.create_queue(name.upper() if number % 2 else name)
        except ResourceExistsError as error:
            return str(error).partition("Content: ")[2].partition(" The")[0]
        return ""

    refused = "<Error><Code>409</Code><Detail>SubCode=40900. Conflict."
    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(create, range(8))) == ["", *[refused] * 7]


def test_what_is_not_there_is_not_found(admin: ServiceBusAdministrationClient) -> None:
    """Read, changed or deleted."""
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("nothing-here")
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue_runtime_properties("nothing-here")
    with pytest.raises(ResourceNotFoundError, match="SubCode=40400"):
        admin.delete_queue("nothing-here")
    there = admin.get_queue("orders")
    changed = {**dict(there), "name": "nothing-here"}
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(QueueProperties(**changed))


def access_rules(count: int) -> list[AuthorizationRule]:
    """So many shared access rules."""
    return [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
            rights=["Listen"], key_name=f"reader{number}", primary_key="key",
        )
        for number in range(count)
    ]  # fmt: skip


def test_an_entity_may_have_twelve_access_rules(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    """All are kept."""
    admin.create_queue(name, authorization_rules=access_rules(12))
    assert len(admin.get_queue(name).authorization_rules) == 12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lock_duration": timedelta(minutes=6)}, "LockDuration is PT6M"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount is 0"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "AutoDeleteOnIdle is PT4M"),
        ({"user_metadata": "x" * 1025}, "UserMetadata"),
        ({"max_message_size_in_kilobytes": 2048}, "Premium namespace only"),
        ({"forward_to": "nothing-here"}, "there is no such queue or topic"),
        ({"authorization_rules": access_rules(13)}, "authorization rules is 13; .* 0 to 12"),
    ],
)
def test_bad_values_are_refused_by_name(
    admin: ServiceBusAdministrationClient, given: dict[str, Any], message: str
) -> None:
    """400 and sub-code 40000; nothing is made."""
    with pytest.raises(HttpResponseError, match=message) as caught:
        admin.create_queue("never-made", **given)
    assert caught.value.status_code == 400
    assert "SubCode=40000." in caught.value.message
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("never-made")


@pytest.mark.parametrize("bad", ["a b", "a*", ".a", "x" * 261, "a//b"])
def test_bad_names_are_refused(admin: ServiceBusAdministrationClient, bad: str) -> None:
    """The error says which names Service Bus takes."""
    with pytest.raises(HttpResponseError, match="is not valid") as caught:
        admin.create_queue(bad)
    assert caught.value.status_code == 400


def test_an_update_takes_effect_on_a_live_queue(
    admin: ServiceBusAdministrationClient, bridge: Bridge, name: str
) -> None:
    """Lock duration, deliveries and status, for a receiver that is there already."""
    admin.create_queue(name)
    queue = admin.get_queue(name)
    queue.lock_duration = timedelta(seconds=5)
    queue.max_delivery_count = 1
    queue.user_metadata = "changed"
    with client_of(bridge) as client, client.get_queue_receiver(name) as receiver:
        send(client, name, "first")
        take(receiver)
        admin.update_queue(queue)
        send(client, name, "second")
        (message,) = receive(receiver)
        left_s = (message.locked_until_utc - datetime.now(UTC)).total_seconds()
        assert left_s < 6
        receiver.abandon_message(message)
        eventually(
            lambda: admin.get_queue_runtime_properties(name).dead_letter_message_count == 1,
            "the message is dead-lettered at its first failure",
        )

        queue.status = EntityStatus.SEND_DISABLED
        admin.update_queue(queue)
        with pytest.raises(ServiceBusError, match="disabled for Send"):
            send(client, name, "refused")
    assert admin.get_queue(name).user_metadata == "changed"
    assert admin.get_queue(name).status == EntityStatus.SEND_DISABLED


def test_what_is_fixed_at_creation_is_refused_in_an_update(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    """By name, and the rest of the update is not done either."""
    queue = admin.create_queue(name)
    queue.requires_session = True
    queue.max_delivery_count = 3
    with pytest.raises(HttpResponseError, match="RequiresSession") as caught:
        admin.update_queue(queue)

    assert caught.value.status_code == 400
    assert admin.get_queue(name).max_delivery_count == 10


def test_a_deleted_queue_is_gone_with_its_messages(
    admin: ServiceBusAdministrationClient, bridge: Bridge, name: str
) -> None:
    """Its receivers are told. The queue of the same name is empty and counts from 1."""
    admin.create_queue(name)
    with client_of(bridge) as client:
        with client.get_queue_sender(name) as sender:
            sender.send_messages([ServiceBusMessage("old") for _ in range(3)])
            later = datetime.now(UTC) + timedelta(seconds=3)
            sender.schedule_messages(ServiceBusMessage("later"), later)
        admin.delete_queue(name)
        with pytest.raises(ServiceBusError):
            send(client, name, "nobody takes it")
        with pytest.raises(ResourceNotFoundError):
            admin.get_queue(name)

        admin.create_queue(name)
        assert admin.get_queue_runtime_properties(name).total_message_count == 0
        send(client, name, "new")
        with client.get_queue_receiver(name) as receiver:
            (message,) = take(receiver)
            assert (str(message), message.sequence_number) == ("new", 1)
            time.sleep(max(0.0, (later - datetime.now(UTC)).total_seconds() + 0.5))
            assert receiver.receive_messages(1, max_wait_time=0.5) == []


def test_counts_are_true(admin: ServiceBusAdministrationClient, bridge: Bridge, name: str) -> None:
    """Ready, locked, deferred, dead-lettered and scheduled messages, in one look."""
    admin.create_queue(name)
    with client_of(bridge) as client, client.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(6)])
        later = datetime.now(UTC) + timedelta(minutes=10)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)
        with client.get_queue_receiver(name) as receiver:
            first, second, third = receive(receiver, 3)
            receiver.dead_letter_message(first)
            receiver.defer_message(second)

            def counts() -> tuple[int, ...]:
                found = admin.get_queue_runtime_properties(name)
                return (
                    found.active_message_count,
                    found.dead_letter_message_count,
                    found.scheduled_message_count,
                    found.transfer_message_count,
                    found.total_message_count,
                )

            # Four are active: three ready and one locked; the deferred one is in the total.
            eventually(lambda: counts() == (4, 1, 2, 0, 8), "the counts are true")
            receiver.complete_message(third)
            sender.cancel_scheduled_messages(numbers[0])
            eventually(lambda: counts() == (3, 1, 1, 0, 6), "the counts follow")


def test_lists_come_in_pages(admin: ServiceBusAdministrationClient, name: str) -> None:
    """Sorted by name; each queue once."""
    names = [f"{name}-{number}" for number in range(5)]
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(admin.create_queue, reversed(names)))

    every = [each.name for each in admin.list_queues()]
    paged = [each.name for each in admin.list_queues(start_index=1, max_page_size=2)]
    facts = [each.name for each in admin.list_queues_runtime_properties(max_page_size=3)]
    assert [each for each in every if each.startswith(name)] == names
    assert paged == every[1:]
    assert facts == every == sorted(every, key=str.lower)


def test_rules_of_a_queue_are_kept_and_heeded(
    admin: ServiceBusAdministrationClient,
    bridge: Bridge,
    name: str,
    admin_port: int,
) -> None:
    """Its listener may listen and not send, its manager may change it and nothing else."""
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
            rights=rights, key_name=key, primary_key=f"{key}-first", secondary_key=f"{key}-second",
        )
        for key, rights in {"reader": ["Listen"], "owner": ["Manage", "Send", "Listen"]}.items()
    ]  # fmt: skip
    admin.create_queue(name, authorization_rules=rules)
    kept = admin.get_queue(name).authorization_rules
    assert [(rule.key_name, set(rule.rights), rule.secondary_key) for rule in kept] == [
        ("reader", {"Listen"}, "reader-second"),
        ("owner", {"Manage", "Send", "Listen"}, "owner-second"),
    ]

    amqp = (
        f"{connection_string(bridge.port, 'reader', 'reader-second')};UseDevelopmentEmulator=true"
    )
    with ServiceBusClient.from_connection_string(amqp, retry_total=0) as client:
        with client.get_queue_receiver(name) as receiver:
            assert receiver.receive_messages(1, max_wait_time=0.5) == []
        with pytest.raises(ServiceBusError):
            send(client, name, "not allowed")
    later_s = time.time() + 60
    for key, allowed in (("reader", 401), ("owner", 200)):
        given = token(admin_port, f"{key}-first", later_s, resource=name, rule=key)
        for path, status in ((name, allowed), ("orders", 401), ("$Resources/Queues", 401)):
            path = f"{path}?api-version=2021-05"
            assert status_of(bridge, path, Authorization=given)[0] == status, (key, path)
    assert put_queue(bridge, name, Authorization=given, If_Match="*") == 200


def test_a_missing_right_is_told_in_azures_words(
    admin: ServiceBusAdministrationClient, bridge: Bridge, name: str
) -> None:
    """A client without a right at a path is not told what is there.

    Where a subscription may not be read the words stand behind the status, too (Azure's Go live
    test LackPermissions_Subscription).
    """
    reader = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=["Listen"], key_name="reader", primary_key="first",
    )  # fmt: skip
    admin.create_queue(name, authorization_rules=[reader])
    port = bridge.port
    given = token(port, "first", time.time() + 60, resource=name, rule="reader")

    def refused(method: str, path: str) -> tuple[int, str, str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/{path}?api-version=2021-05",
            headers={"Authorization": given},
            method=method,
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=120)
        with caught.value as error:
            return error.code, error.reason, error.read().decode()

    for path in (name, f"{name}/nothing", "$Resources/Queues"):
        status, text = status_of(bridge, f"{path}?api-version=2021-05", Authorization=given)
        assert status == 401, path
        assert ">Manage,EntityRead claims required for this operation." in text
    for method, path, operation in (
        ("GET", "Subscriptions/x", "GetSubscription"),
        ("GET", "Subscriptions", "EnumerateSubscriptions"),
        ("PUT", "Subscriptions/x", "CreateOrUpdateSubscription"),
        ("DELETE", "Subscriptions/x", "DeleteSubscription"),
    ):
        code, reason, text = refused(method, f"{name}/{path}")
        words = f"SubCode=40100: Unauthorized : Unauthorized access for '{operation}'"
        assert (code, reason) == (401, f"{words} operation")
        assert f"{words} operation on endpoint" in text
    for method, action in (("PUT", "EntityWrite"), ("DELETE", "EntityDelete")):
        _, _, said = refused(method, name)
        assert f"Authorization failed for specified action: Manage,{action}." in said


def test_who_has_any_right_is_told_that_an_entity_is_not_there(
    start_bridge: Any, tmp_path: Path
) -> None:
    """Of one that is there the right is told (Azure's Go live test LackPermissions_Queue)."""
    keys = tmp_path / "auth.json"
    rules = [
        {"name": name, "primaryKey": f"{name}-first", "rights": rights}
        for name, rights in (("owner", ["Manage", "Send", "Listen"]), ("reader", ["Listen"]))
    ]
    keys.write_text(json.dumps({"rules": rules}))
    bridge = start_bridge("--auth", str(keys))
    given, owns = (
        token(bridge.port, f"{rule}-first", time.time() + 60, rule=rule)
        for rule in ("reader", "owner")
    )
    assert put_queue(bridge, "there", Authorization=owns) == 201
    status, text = status_of(bridge, "nothing?api-version=2021-05", Authorization=given)
    assert (status, "<feed" in text, "<entry" in text) == (200, True, False)
    status, text = status_of(bridge, "there?api-version=2021-05", Authorization=given)
    assert (status, ">Manage,EntityRead claims required" in text) == (401, True)


def token(port: int, key: str, expires_s: float, *, resource: str = "", rule: str = KEY[0]) -> str:
    """Return a shared access signature."""
    resource = quote_plus(f"https://localhost:{port}/{resource}")
    signed = f"{resource}\n{int(expires_s)}".encode()
    signature = quote_plus(base64.b64encode(hmac.digest(key.encode(), signed, hashlib.sha256)))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={int(expires_s)}&skn={rule}"


def status_of(bridge: Bridge, path: str, **headers: str) -> tuple[int, str]:
    """Ask without an SDK; return the status and the body."""
    request = urllib.request.Request(f"http://127.0.0.1:{bridge.port}/{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def put_queue(bridge: Bridge, name: str, inner: str = "", **headers: str) -> int:
    """Describe a queue without an SDK; return the status."""
    description = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content><QueueDescription xmlns='
        '"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
        f"{inner}</QueueDescription></content></entry>"
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{bridge.port}/{name}?api-version=2021-05",
        description.encode(),
        {key.replace("_", "-"): text for key, text in headers.items()},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def read_etag(bridge: Bridge, name: str, key: str) -> str:
    """Return the ETag of a queue."""
    url = f"http://127.0.0.1:{bridge.port}/{name}?api-version=2021-05"
    request = urllib.request.Request(url, headers={"Authorization": key})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(answer.headers["ETag"])


def test_an_update_of_what_has_changed_since_is_refused(bridge: Bridge, name: str) -> None:
    """If-Match with the ETag that was read; `*` is any."""
    key = token(bridge.port, KEY[1], time.time() + 60)
    assert put_queue(bridge, name, Authorization=key) == 201
    assert put_queue(bridge, name, Authorization=key) == 409
    etag = read_etag(bridge, name, key)
    statuses = [
        put_queue(bridge, name, Authorization=key, If_Match=match) for match in (etag, etag, "*")
    ]
    assert statuses == [200, 412, 200]


def test_of_updates_of_one_etag_at_once_one_is_made(
    bridge: Bridge, broker: Broker, module_vhost: str, name: str
) -> None:
    """At one bridge, and at two that know nothing of each other's change yet."""
    key = token(bridge.port, KEY[1], time.time() + 60)
    assert put_queue(bridge, name, Authorization=key) == 201
    other = bridge_of(broker, module_vhost)
    other.start()
    try:
        for asked in ([bridge] * 4, [bridge, other] * 2):
            etag = read_etag(bridge, name, key)
            with ThreadPoolExecutor(len(asked)) as threads:
                statuses = threads.map(
                    lambda at, etag=etag: put_queue(at, name, Authorization=key, If_Match=etag),
                    asked,
                )
                assert sorted(statuses) == [200, 412, 412, 412]
    finally:
        other.stop()


def test_an_entity_may_forward_to_itself(admin: ServiceBusAdministrationClient, name: str) -> None:
    """Azure takes that, too."""
    queue = admin.create_queue(name)
    queue.forward_to = name
    admin.update_queue(queue)
    assert admin.get_queue(name).forward_to.endswith(f"/{name}")


def test_what_is_fixed_is_refused_in_azures_words(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    """Programs look for them."""
    queue = admin.create_queue(name)
    for field, words in (
        ("requires_session", "The value for the RequiresSession property of an existing Queue "),
        ("enable_partitioning", "Partitioning cannot be changed for Queue. "),
    ):
        changed = admin.get_queue(name)
        setattr(changed, field, not getattr(queue, field))
        with pytest.raises(HttpResponseError, match=words):
            admin.update_queue(changed)


def test_who_forwards_needs_the_right_to_send_there(
    admin: ServiceBusAdministrationClient, bridge: Bridge, name: str
) -> None:
    """A second token gives it, where the first does not."""
    owner = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=["Manage", "Send", "Listen"], key_name="owner", primary_key="first",
    )  # fmt: skip
    admin.create_queue(name, authorization_rules=[owner])
    until_s = time.time() + 60
    given = {
        "Authorization": token(bridge.port, "first", until_s, resource=name, rule="owner"),
        "If_Match": "*",
    }
    inner = "<ForwardTo>orders</ForwardTo>"
    second = token(bridge.port, KEY[1], until_s, resource="orders")
    assert put_queue(bridge, name, inner, **given) == 401
    assert put_queue(
        bridge, name, inner, ServiceBusSupplementaryAuthorization=second, **given
    ) == 200  # fmt: skip
    assert admin.get_queue(name).forward_to == f"sb://localhost:{bridge.port}/orders"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no XML",
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        b"<a>" * 10_000,
        b"<entry/>",
        b"\xff",
        b"x" * 100_000,
    ],
    ids=["nothing", "text", "entity", "depth", "empty", "not UTF-8", "long"],
)
def test_a_body_from_a_stranger_is_refused_in_azure_s_form(bridge: Bridge, body: bytes) -> None:
    """400 and sub-code 40000."""
    request = urllib.request.Request(
        f"{bridge.admin_url}/stranger?api-version=2021-05",
        body,
        {"Authorization": token(bridge.port, KEY[1], time.time() + 60)},
        method="PUT",
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=120)
    with caught.value as error:
        said = error.read().decode()
    assert said.startswith("<Error><Code>400</Code><Detail>SubCode=40000. Bad Request.")


def test_no_operation_goes_without_a_valid_token(bridge: Bridge) -> None:
    """No token, another key's, an expired one, and one for another entity: 401 each."""
    now_s = time.time()
    path = "orders?api-version=2021-05"
    assert status_of(bridge, path, Authorization=token(1, KEY[1], now_s + 60))[0] == 200
    assert status_of(bridge, path, Authorization=token(1, KEY[1], now_s - 30))[0] == 200
    for given in (
        "",
        "Bearer x",
        token(1, "another key", now_s + 60),
        token(1, KEY[1], now_s - 90),
        token(1, KEY[1], now_s + 60, resource="others"),
    ):
        status, body = status_of(bridge, path, Authorization=given)
        assert status == 401, given
        assert "<Error><Code>401</Code><Detail>" in body
        assert "SAS_KEY_VALUE" not in body
        assert status_of(bridge, "nothing?api-version=1", Authorization=given)[0] == 401


def test_a_queue_may_be_called_as_a_page_of_the_operator(
    admin: ServiceBusAdministrationClient, bridge: Bridge
) -> None:
    """The clients name a version of the API, a probe does not."""
    admin.create_queue("health")
    assert admin.get_queue("health").max_delivery_count == 10
    admin.delete_queue("health")
    assert "healthy" in bridge.get("/health")


def test_the_namespace_is_described(admin: ServiceBusAdministrationClient) -> None:
    """Its name and tier."""
    found = admin.get_namespace_properties()

    assert (found.name, found.messaging_sku) == ("sbemulatorns", "Standard")
    assert found.namespace_type == "Messaging"


async def test_the_asynchronous_client_does_the_same(
    admin_port: int, admin_options: dict[str, Any], name: str
) -> None:
    """Create, read, change, list, delete."""
    text = connection_string(admin_port)
    async with AsyncAdministrationClient.from_connection_string(text, **admin_options) as client:
        queue = await client.create_queue(name, lock_duration=timedelta(seconds=9))
        queue.max_delivery_count = 4
        await client.update_queue(queue)
        read = await client.get_queue(name)
        assert (read.lock_duration, read.max_delivery_count) == (timedelta(seconds=9), 4)
        assert name in [each.name async for each in client.list_queues()]
        await client.delete_queue(name)
        with pytest.raises(ResourceNotFoundError):
            await client.get_queue(name)
