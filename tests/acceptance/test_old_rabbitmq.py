"""A RabbitMQ older than 4.0: the bridge and the library's clients say so, and do nothing there.

It is the tests' RabbitMQ behind a relay that changes the version that it tells.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.acceptance.lanes import LANES, lane_of
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.older_rabbitmq import OlderRabbitMQ
from tests.fixtures.waiting import eventually

NEEDED = "is too old: the bridge and its clients need 4.0 or newer"

ENTITIES: dict[str, dict[str, Any]] = {"orders": {}}

COMMANDS = "serve", "sidecar"

WITHIN_S = 120.0


@pytest.fixture
def older(broker: Broker, module_vhost: str) -> Iterator[OlderRabbitMQ]:
    """The bridge's RabbitMQ, which says that it is a 3.x."""
    with OlderRabbitMQ(broker.url_of(module_vhost), broker.version_text) as relay:
        yield relay


def expect_one_sentence(code: int, printed: str, version: str) -> None:
    """It ended with code 1, and its last line says what is wrong and what to do."""
    assert code == 1, printed
    assert "Traceback" not in printed
    assert printed.count("is too old") == 1
    last = printed.strip().splitlines()[-1]
    assert last.startswith(f"busbridge: RabbitMQ {version} {NEEDED}"), last
    assert "Upgrade RabbitMQ" in last


@pytest.mark.parametrize("command", COMMANDS)
def test_a_start_ends_with_a_sentence(
    older: OlderRabbitMQ, broker: Broker, module_vhost: str, command: str
) -> None:
    """Also where only its management API tells an old version."""
    with OlderRabbitMQ(broker.management_url, broker.version_text) as management:
        for url, management_url in (
            (older.url, broker.management_url),
            (broker.url_of(module_vhost), management.url),
        ):
            urls = "--rabbitmq-url", url, "--management-url", management_url
            done = subprocess.run(
                [sys.executable, "-m", "bridge.cli.main", command, "--admin-port", "0", *urls],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
            expect_one_sentence(done.returncode, done.stderr, older.version)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bridge_that_finds_an_older_one_again_ends(
    older: OlderRabbitMQ, broker: Broker, module_vhost: str, command: str
) -> None:
    """Somebody has put it in the place of the one that was there."""
    older.is_older = False
    bridge = bridge_of(broker, module_vhost, "--rabbitmq-url", older.url, command=command)
    try:
        bridge.start()
        older.is_older = True
        older.cut()
        code = bridge.wait(within_s=WITHIN_S)
        expect_one_sentence(code, "\n".join(bridge.lines), older.version)
    finally:
        bridge.kill()


@pytest.mark.parametrize("lane", LANES[1:])
def test_a_client_says_so_at_once(older: OlderRabbitMQ, lane: str) -> None:
    """Without a bridge, each verb fails so; no older RabbitMQ has one."""
    with lane_of(lane, SimpleNamespace(amqp_url=older.url)) as made:
        kind = made.errors.UnsupportedRabbitMQError
        for ask in (
            lambda: made.send("orders", "x"),
            lambda: made.client.get_queue_receiver("orders").receive_messages(max_wait_time=1),
        ):
            with pytest.raises(kind, match=f"RabbitMQ {older.version} {NEEDED}"):
                ask()


@pytest.mark.parametrize("lane", LANES[1:])
def test_a_client_goes_on_when_the_older_one_is_replaced(
    older: OlderRabbitMQ, bridge: Any, lane: str
) -> None:
    """It tells of the older one for as long as that is there, and connects again by itself."""
    with lane_of(lane, SimpleNamespace(amqp_url=older.url), retry_total=0) as made:

        def outcome() -> type[Exception] | None:
            try:
                made.send("orders", "x")
            except made.errors.ServiceBusError as error:
                return type(error)
            return None

        assert outcome() is made.errors.UnsupportedRabbitMQError
        older.is_older = False
        eventually(lambda: outcome() is None, within_s=WITHIN_S)
        older.is_older = True
        older.cut()
        eventually(lambda: outcome() is made.errors.UnsupportedRabbitMQError, within_s=WITHIN_S)
