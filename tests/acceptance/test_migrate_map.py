"""`busbridge migrate map`: the numbers that messages had, read from what their mover wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Busbridge
from tests.acceptance.sdk import client_of, receive, send
from tests.acceptance.two_bridges import config
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}


@pytest.fixture
def bridge(broker: Broker, tmp_path: Path) -> Iterator[Bridge]:
    """A bridge that a relay has brought messages to."""
    with broker.fresh_vhost() as vhost:
        found = bridge_of(broker, vhost, config=config(tmp_path, "target", {"orders": {}}, TOPIC))
        found.start()
        try:
            yield found
        finally:
            found.stop()


def moved(text: str, numbers: str) -> ServiceBusMessage:
    """A message as a relay sends it."""
    return ServiceBusMessage(text, application_properties={"repl-sequence": numbers})


def test_each_message_that_had_another_number_is_shown_with_both(
    bridge: Bridge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of all states; one of the target's own is counted alone, one with another text named."""
    busbridge = Busbridge(bridge.connection_string, tmp_path, monkeypatch, capsys)
    with client_of(bridge) as client:
        send(client, "orders", moved("one", "17"), moved("two", "3;42"), ServiceBusMessage("own"))
        send(client, "orders", moved("no number", "abc"))
        with client.get_topic_sender("events") as sender:
            sender.send_messages(moved("event", "8"))
        with client.get_queue_receiver("orders") as receiver:
            first, *others = receive(receiver, 4)
            receiver.dead_letter_message(first, reason="bad")
            for each in others:
                receiver.abandon_message(each)

    def rows() -> list[dict[str, Any]]:
        said = busbridge("migrate", "map", "orders", "events", "--json")
        assert said.code == 0, said.err
        found = said.rows if "3 messages had another number; 1 have come" in said.err else []
        assert not found or "has the property repl-sequence 'abc'" in said.err
        return sorted(found, key=lambda row: str(row["old"]))

    eventually(lambda: len(rows()) == 4, "all is there")
    one, two, event, untold = rows()
    assert (one["old"], one["queue"], one["state"]) == (17, "dead letters", "dead_letter")
    assert (two["old"], two["before"], two["state"]) == (42, [3], "active")
    assert (event["entity"], event["old"]) == ("events/Subscriptions/audit", 8)
    assert [one["new"], two["new"]] == sorted([one["new"], two["new"]])
    assert (untold["old"], untold["says"]) == (None, "'abc'")
    assert busbridge("migrate", "map", "absent").code == 2
