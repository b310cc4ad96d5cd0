"""A temporary queue of five real minutes, made and watched through Azure's own client."""

from __future__ import annotations

import time

import pytest
from azure.core.exceptions import ResourceNotFoundError

from tests.acceptance.sdk import client_of, send
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import StartBridge

ENTITIES: dict[str, dict[str, object]] = {}

IDLE_S = 300.0
LATE_S = 60.0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_queue_is_deleted_five_minutes_after_the_last_send(
    start_bridge: StartBridge, administer: Administer
) -> None:
    """Not earlier; a minute later at most."""
    bridge = start_bridge()
    admin = administer(bridge)
    admin.create_queue("temporary", auto_delete_on_idle="PT5M")
    time.sleep(20)  # idle as well, though not for long enough
    with client_of(bridge) as client:
        send(client, "temporary", "hello")
    sent_s = time.monotonic()
    while True:
        looked_s = time.monotonic() - sent_s
        try:
            admin.get_queue("temporary")
        except ResourceNotFoundError:
            break
        assert looked_s < IDLE_S + LATE_S, "late"
        time.sleep(0.5)
    assert looked_s >= IDLE_S, "early"
