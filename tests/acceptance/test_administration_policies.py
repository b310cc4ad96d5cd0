"""`busbridge policies` reads a live namespace by its connection string."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from bridge.cli.live_namespace import live_namespace
from bridge.topology.definitions import entities
from policies.readers import read_all
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

ENTITIES = {"orders/in": {"MaxDeliveryCount": 7, "LockDuration": "PT7S"}}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "all"}, {"Name": "red"}]}]

Policies = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def policies(bridge: Bridge) -> Policies:
    """Run `busbridge policies`, with what the bridge's certificate is signed by trusted."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bridge.cli.main", "policies", *arguments],
            env={**os.environ, "SSL_CERT_FILE": str(bridge.ca)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_a_live_namespace_is_read_whole(
    bridge: Bridge, admin: ServiceBusAdministrationClient, policies: Policies, tmp_path: Path
) -> None:
    """Queues, topics, subscriptions and rules; the string may be given, or in a file."""
    admin.create_rule("events", "red", "red", filter=SqlRuleFilter("color = 'red'"))
    secret = tmp_path / "connection"
    secret.write_text(connection_string(bridge.port) + "\n")
    for given in (connection_string(bridge.port), str(secret), bridge.connection_string):
        done = policies("report", given, "--json", "--flavour", "bridge", "--target", "4.3")
        assert done.returncode == 0, done.stderr
        found = _values(done.stdout)
        assert found["orders/in", "MaxDeliveryCount"] == "7"
        assert found["orders/in", "LockDuration"] == "PT7S"
        assert found["events/Subscriptions/red", "Rule red"] == "color = 'red'"
        assert "SAS_KEY_VALUE" not in done.stdout + done.stderr


def _values(report: str) -> dict[tuple[str, str], Any]:
    entries = json.loads(report)["entries"]
    return {(entry["entity"], entry["property"]): entry["value"] for entry in entries}


def test_a_namespace_of_many_pages_is_read_whole(bridge: Bridge) -> None:
    """Each page has a link to the next, which is no loss then."""
    live = replace(live_namespace(bridge.connection_string), page=1)
    reading = read_all([(live.url, live.read())])
    names = [each.path for each in entities(reading.namespace)]
    assert names == [*ENTITIES, "events", "events/Subscriptions/all", "events/Subscriptions/red"]
    assert not [each for each in reading.findings if each.property == "link"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("SAS_KEY_VALUE", "wrong"), "401"),
        (("SharedAccessKeyName", "Name"), "SharedAccessKeyName and SharedAccessKey go together"),
        (
            ("SharedAccessKeyName", "EntityPath=orders/in;SharedAccessKeyName"),
            "'orders/in' alone",
        ),
    ],
)
def test_what_cannot_be_read_is_said(
    bridge: Bridge, policies: Policies, change: tuple[str, str], said: str
) -> None:
    """In one sentence, without the key."""
    done = policies("report", connection_string(bridge.port).replace(*change))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong" not in done.stderr
