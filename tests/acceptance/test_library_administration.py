"""The library's administration clients do what the Azure SDK's does through the gateway.

The scenarios are those of test_administration.py and test_administration_topics.py, with the same
assertions: each file is read once more for each lane, with the library's names where the SDK's
stand. azure.core's errors stay: the library raises those where azure-core is installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import azure.core.exceptions
import azure.servicebus.aio.management
import azure.servicebus.management
import pika
import pytest

import bridge.client.aio.management
import bridge.client.management
import bridge.client.management.errors as bridge_errors
from bridge.client.exceptions import ServiceBusAuthorizationError, ServiceBusCommunicationError
from bridge.topology import names
from bridge.wire.administration import Request, encode_request
from bridge.wire.basic import encode_table
from bridge.wire.notifications import WHO
from bridge.wire.reply import Done, Refusal, decode_reply
from tests.acceptance.lanes import LANES, OnLoop, event_loop
from tests.acceptance.sdk import native_channel
from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

HERE = Path(__file__).parent
ENTITIES: dict[str, Any] = {"orders": {"LockDuration": "PT30S", "MaxDeliveryCount": 10}}

INSTEAD = {
    "azure.servicebus.management": bridge.client.management,
    "azure.servicebus.aio.management": bridge.client.aio.management,
}

OF_HTTP = {
    "test_a_missing_right_is_told_in_azures_words_and_nothing_else_is",
    "test_an_update_of_what_has_changed_since_is_refused",
    "test_who_forwards_needs_the_right_to_send_there",
    "test_a_body_from_a_stranger_is_refused_in_azure_s_form",
    "test_no_operation_goes_without_a_valid_token",
    "test_a_queue_may_be_called_as_a_page_of_the_operator",
    "test_rules_of_a_queue_are_kept_and_heeded",
    "test_rules_of_a_topic_are_inherited_by_its_subscriptions",
    "test_the_asynchronous_client_does_the_same",
}
"""Of requests without a client, tokens and rights: those of the gateway's door."""

QUICK = {
    "test_a_queue_is_made_with_every_property_and_read_back",
    "test_what_is_not_there_is_not_found",
    "test_bad_values_are_refused_by_name",
    "test_rules_are_made_changed_and_deleted",
    "test_lists_come_in_pages",
}
"""Those of `make test`; the others are of `make test-sdks`."""


def scenarios(file: str) -> dict[str, Any]:
    """Read a file of tests with the library's names instead of the SDK's."""
    module = ModuleType(f"{__name__}.{file}")
    source = compile((HERE / file).read_text(), str(HERE / file), "exec")
    before = {name: sys.modules[name] for name in INSTEAD}
    sys.modules.update(INSTEAD)
    try:
        exec(source, vars(module))
    finally:
        sys.modules.update(before)
    return vars(module)


class _Scenarios:
    """The tests of a file, as methods, so that those of two files may have the same name."""


def _methods(file: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in scenarios(file).items():
        if name.startswith("test_") and name not in OF_HTTP:
            mark = () if name in QUICK else (pytest.mark.sdks,)
            found[name] = staticmethod(_marked(each, mark))
    return found


def _marked(test: Any, marks: Any) -> Any:
    for mark in marks:
        test = mark(test)
    return test


TestQueues = type("TestQueues", (_Scenarios,), _methods("test_administration.py"))
TestTopics = type("TestTopics", (_Scenarios,), _methods("test_administration_topics.py"))

name = scenarios("test_administration.py")["name"]
topic = scenarios("test_administration_topics.py")["topic"]


@contextmanager
def administrator(lane: str, url: str, **options: Any) -> Iterator[Any]:
    """A client of a lane with the calls of the synchronous one; it does not try again."""
    options = {"retry_total": 0, **options}
    if lane == "pika":
        with bridge.client.management.ServiceBusAdministrationClient(url, **options) as client:
            yield client
        return
    with event_loop() as loop:
        made = bridge.client.aio.management.ServiceBusAdministrationClient(url, **options)
        with OnLoop(made, loop) as client:
            yield client


@pytest.fixture(scope="module", params=LANES[1:])
def admin(request: pytest.FixtureRequest, bridge: Bridge) -> Iterator[Any]:
    """The library's administrator, on pika and on aio-pika."""
    with administrator(request.param, _on_localhost(bridge.amqp_url)) as client:
        yield client


@pytest.fixture(scope="module")
def admin_port(bridge: Bridge) -> int:
    """What stands in the URLs of entities: RabbitMQ's port."""
    return int(bridge.amqp_url.rpartition("@")[2].partition("/")[0].rpartition(":")[2])


def _on_localhost(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


def test_errors_are_azure_cores_too(admin: Any) -> None:
    """Both names catch it."""
    with pytest.raises(azure.core.exceptions.ResourceNotFoundError) as caught:
        admin.get_queue("nothing-here")
    assert isinstance(caught.value, bridge.client.management.ResourceNotFoundError)
    assert caught.value.status_code == 404


def test_what_is_no_property_is_refused(admin: Any) -> None:
    """Before anything is asked."""
    with pytest.raises(TypeError, match="lock_time"):
        admin.create_queue("never-made", lock_time=1)
    with pytest.raises(TypeError, match="page"):
        admin.list_queues(page=1)


def test_without_its_name_nothing_else_is_deleted(admin: Any, topic: str) -> None:
    """A subscription's path would be its topic's, a rule's its subscription's."""
    admin.create_subscription(topic, "audit")
    with pytest.raises(TypeError, match="NoneType"):
        admin.delete_rule(topic, "audit", None)
    with pytest.raises(TypeError, match="NoneType"):
        admin.delete_subscription(topic, None)
    assert admin.get_subscription(topic, "audit").name == "audit"


@pytest.mark.parametrize("lane", LANES[1:])
def test_who_may_not_write_to_the_exchange_may_not_administer(
    lane: str, bridge: Bridge, broker: Broker
) -> None:
    """RabbitMQ's permissions decide; the error names the exchange. A bridge's queue takes none."""
    vhost = bridge.amqp_url.rpartition("/")[2]
    user = f"worker-{lane}"
    everything_else = rf"^(?!{names.ADMINISTRATION.replace('$', '[$]')}$).*"
    rights = {"configure": "", "write": everything_else, "read": ".*"}
    broker.management("PUT", f"/api/users/{user}", {"password": "secret", "tags": ""})
    broker.management("PUT", f"/api/permissions/{vhost}/{user}", rights)
    place = bridge.amqp_url.rpartition("@")[2]
    try:
        with (
            administrator(lane, f"amqp://{user}:secret@{place}") as client,
            pytest.raises(ServiceBusAuthorizationError, match=r"exchange \$sb/administration"),
        ):
            client.delete_queue("orders")
    finally:
        broker.management("DELETE", f"/api/users/{user}")


def test_a_question_that_passes_by_the_exchange_is_refused(bridge: Bridge) -> None:
    """A client that may write to the default exchange alone reaches a bridge, but no entity."""
    question = Request(method="DELETE", path="orders", host="here")
    with native_channel(bridge) as channel:
        (answer,) = _asked(channel, names.EVENTS, "", b"", type=WHO)
        found = decode_reply(answer)
        assert isinstance(found, Done)
        body = encode_table(encode_request(question))
        (answer,) = _asked(channel, "", found.content.decode(), body)
    refused = decode_reply(answer)
    assert isinstance(refused, Refusal)
    assert (refused.condition, names.ADMINISTRATION in refused.description) == (
        "amqp:unauthorized-access",
        True,
    )


def _asked(channel: Any, exchange: str, key: str, body: bytes, **more: str) -> list[bytes]:
    """Ask as a native client; return the first answer."""
    answers: list[bytes] = []
    tag = channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda *given: answers.append(given[3]), auto_ack=True
    )
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1", **more)
    channel.basic_publish(exchange, key, body, properties, mandatory=True)
    end = time.monotonic() + 120
    while not answers and time.monotonic() < end:
        channel.connection.process_data_events(0.1)
    channel.basic_cancel(tag)
    return answers


@pytest.fixture(scope="module")
def worker(broker: Broker) -> Iterator[tuple[Bridge, Callable[[bool], None]]]:
    """A bridge of its own, and what lets its user change definitions in RabbitMQ, or not."""
    user = "bridge-without-tag"

    def allow(is_allowed: bool) -> None:
        tags = "policymaker" if is_allowed else "management"
        broker.management("PUT", f"/api/users/{user}", {"password": "secret", "tags": tags})

    with broker.fresh_vhost() as vhost:
        allow(True)
        rights = dict.fromkeys(("configure", "write", "read"), ".*")
        broker.management("PUT", f"/api/permissions/{vhost}/{user}", rights)
        place = broker.url_of(vhost).rpartition("@")[2]
        port = broker.management_url.rpartition(":")[2]
        urls = (f"amqp://{user}:secret@{place}", f"http://{user}:secret@127.0.0.1:{port}")
        made = Bridge(("--rabbitmq-url", urls[0], "--management-url", urls[1]), amqp_url=urls[0])
        try:
            made.start()
            yield made, allow
        finally:
            made.kill()
            broker.management("DELETE", f"/api/users/{user}")


@pytest.mark.parametrize("lane", LANES[1:])
def test_what_fails_for_the_moment_is_tried_again(
    lane: str, worker: tuple[Bridge, Callable[[bool], None]]
) -> None:
    """A 504 is, as by azure-core, for the change may be made; not with `retry_total=0`."""
    bridge, allow = worker

    def failed() -> int:
        return sum(f"administration.failed path='waits-{lane}'" in line for line in bridge.lines)

    allow(False)
    with administrator(lane, bridge.amqp_url) as client:
        with pytest.raises(bridge_errors.HttpResponseError) as caught:
            client.create_queue(f"waits-{lane}")
        assert caught.value.status_code == 504
        # What the bridge logged is read by a thread of its own, maybe after its answer.
        eventually(lambda: failed() >= 1, "it was tried")
        assert failed() == 1
    options = {"retry_total": 9, "retry_backoff_factor": 0.2, "retry_mode": "fixed"}
    with administrator(lane, bridge.amqp_url, **options) as client, ThreadPoolExecutor(1) as pool:
        made = pool.submit(client.create_queue, f"waits-{lane}")
        eventually(lambda: failed() >= 3, "it was tried twice")
        allow(True)
        assert made.result(120).name == f"waits-{lane}"


def test_where_no_bridge_answers_the_error_says_so(broker: Broker, vhost: str) -> None:
    """A virtual host without a bridge."""
    with (
        administrator("pika", broker.url_of(vhost)) as client,
        pytest.raises(ServiceBusCommunicationError),
    ):
        client.get_queue("orders")
