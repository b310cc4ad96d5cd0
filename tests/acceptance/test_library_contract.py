"""The scenarios that the Azure SDK passes through the gateway, with both lanes of the library.

Each file is read once more with the library's names where the SDK's stand, and run on a bridge of
its own for each lane: same queues, same assertions. What is left out is named, with the reason.
test_sessions.py has all three clients in it already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

import bridge.client
import bridge.client.aio
import bridge.client.exceptions
from tests.acceptance import renamed
from tests.acceptance.lanes import LANES, lane_of
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.sdks

RAW = "the message's AMQP 1.0 form, which the library has not"
ANNOTATED = "AmqpAnnotatedMessage is refused by name"
LINK = "by hand on the SDK's own link: released, or with annotations"
PROCESS = "starts a bridge of its own with the file's entities"
RULES = "by hand on the SDK's own $management link: rules are the administration client's"

LEFT_OUT: dict[str, dict[str, str]] = {
    "peek_lock": {
        "test_a_completed_message_is_gone": RAW,
        "test_delivery_annotations_arrive_as_sent": ANNOTATED,
        "test_fifty_releases_leave_the_count_alone": LINK,
        "test_what_a_leaving_receiver_did_not_read": LINK,
        "test_receive_and_delete": LINK,
        "test_messages_in_the_clients_buffer": "nothing is locked ahead: docs/library.md",
    },
    "scheduled": {},
    "deferral": {
        "test_what_is_deferred_outlives_a_kill": PROCESS,
        "test_a_reason_that_is_no_text": "a TypeError of the library's own: docs/library.md",
    },
    "dead_letter": {},
    "browse": {
        "test_a_bridge_that_starts_anew_shows_the_same": PROCESS,
        "test_deferred_messages_are_found_whatever_a_killed_bridge_has_settled": PROCESS,
        "test_a_message_comes_as_it_was_sent": RAW,
    },
    "expiration": {
        "test_nothing_expired_is_delivered": RAW,
        "test_expiry_takes_effect_when_the_lock_ends": LINK,
    },
    "duplicates": {
        "test_a_restarted_bridge_knows_what_was_accepted": PROCESS,
        "test_ids_of_two_types_are_two_ids": RAW,
    },
    "sequence_numbers": {"test_a_client_cannot_choose": ANNOTATED},
    "topics": {},
    "rules": {
        "test_a_topic_has_no_rules": RULES,
        "test_rules_need_the_right_to_listen": PROCESS,
        "test_rules_are_added_listed_and_removed": RULES,
        "test_what_is_no_rule_is_refused": RULES,
    },
    "sizes": {"test_an_id_above_the_limit": ANNOTATED},
    "native": {},
    "aio": {"test_refusals": "of keys: RabbitMQ's login has tests of its own"},
}
"""File of tests -> test -> why it is none of the library's."""


@contextmanager
def client_of(bridge: Any, **options: Any) -> Iterator[Any]:
    """A client of the lane that a bridge is used with; it does not retry."""
    with lane_of(bridge.lane, bridge, **options) as lane:
        yield lane.client


NAMES = {
    "azure.servicebus": bridge.client,
    "azure.servicebus.aio": bridge.client.aio,
    "azure.servicebus.exceptions": bridge.client.exceptions,
}


def _class(file: str) -> type:
    sdk = ModuleType("tests.acceptance.sdk")
    vars(sdk).update(renamed.read("sdk.py", NAMES))
    vars(sdk)["client_of"] = client_of
    found = renamed.read(f"test_{file}.py", {**NAMES, "tests.acceptance.sdk": sdk})
    assert not set(LEFT_OUT[file]) - set(found), "a test that is left out is not there"
    body = renamed.methods(found, LEFT_OUT[file])
    body["found"] = found
    name = "Test" + "".join(word.capitalize() for word in file.split("_"))
    return type(name, (), body)


for _file in LEFT_OUT:
    _made = _class(_file)
    globals()[_made.__name__] = _made


@pytest.fixture(scope="class", params=LANES[1:])
def bridge(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bridge]:
    """A bridge with the entities of the file, for one lane.

    A connection string of Azure's may stay: the variable says where RabbitMQ is.
    """
    found = request.cls.found
    queues = [{"Name": name, "Properties": each} for name, each in found["ENTITIES"].items()]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": found.get("TOPICS", [])}
    document = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
    config = tmp_path_factory.mktemp("config") / "Config.json"
    config.write_text(json.dumps(document))
    with broker.fresh_vhost() as vhost, pytest.MonkeyPatch.context() as patch:
        made = bridge_of(broker, vhost, config=config)
        made.lane = request.param  # type: ignore[attr-defined]
        patch.setenv("BUSBRIDGE_RABBITMQ_URL", made.amqp_url)
        made.start()
        yield made
        made.stop()
