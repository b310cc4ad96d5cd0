"""An issuer that is away: who has a token goes on, by the keys that were there before."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from azure.identity import ClientSecretCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from bridge.access.access import Access
from bridge.background.supervisor import Supervisor
from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from bridge.model.access_policy import read_policy
from tests.acceptance.issuer import TENANT, Issuer
from tests.acceptance.logins import ROLES, application, rule_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door
from tests.integration.gateway_door import serve

pytestmark = pytest.mark.long

SCOPE = "https://servicebus.azure.net//.default"
ORDERS = application("orders")


class Clock:
    """The clocks of a bridge, which the test sets forward."""

    ahead_s = 0.0

    def now_s(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self.ahead_s

    def monotonic_s(self) -> float:
        """Return a time in seconds."""
        return time.monotonic() + self.ahead_s


def logged_in(issuer: Issuer) -> ClientSecretCredential:
    """A credential that has a token already, for an hour."""
    credential = ClientSecretCredential(
        TENANT,
        ORDERS.id,
        ORDERS.secret,
        authority=issuer.url,
        disable_instance_discovery=True,
        connection_verify=str(issuer.ca),
    )
    credential.get_token(SCOPE)
    return credential


def work(port: int, credential: ClientSecretCredential) -> None:
    """Open links; send, receive and complete."""
    place = f"localhost:{port}"
    with ServiceBusClient(place, credential, use_tls=False, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders", max_wait_time=120) as receiver:
            (message,) = receiver.receive_messages()
            receiver.complete_message(message)


async def test_an_issuer_that_is_away_for_ten_minutes(
    endpoint: Endpoint, broker: Broker, tmp_path: Path
) -> None:
    """Tokens by its known key are taken, by an unknown one when it is back; health names it."""
    issuer, clock = Issuer(tmp_path, [ORDERS]), Clock()
    policy = read_policy(json.dumps({"issuers": [rule_of(issuer, ROLES["owner"])]}))
    access = Access(policy, now_s=clock.now_s, clock=clock.monotonic_s)
    orders = model.Queue(name="orders")
    async with (
        open_door(endpoint, broker.management_url, orders) as door,
        serve(door, access) as served,
    ):
        access.start(Supervisor())
        known = await asyncio.to_thread(logged_in, issuer)
        await asyncio.to_thread(work, served.port, known)
        issuer.rotate()
        unknown = await asyncio.to_thread(logged_in, issuer)
        with issuer.away():
            clock.ahead_s = 600
            with pytest.raises(ServiceBusError):
                await asyncio.to_thread(work, served.port, unknown)
            assert [each for each in access.warnings if issuer.name in each]
            await asyncio.to_thread(work, served.port, known)
        clock.ahead_s += 60

        async def works() -> bool:
            try:
                await asyncio.to_thread(work, served.port, unknown)
            except ServiceBusError:
                return False
            return not access.warnings

        await until(works)
        await access.stop()
    issuer.close()
