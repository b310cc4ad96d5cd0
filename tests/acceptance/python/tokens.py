"""Logs in with azure-identity and works with the unmodified azure-servicebus.

    python tokens.py HOST:PORT QUEUE [SCENARIO...]
    python tokens.py HOST:PORT QUEUE load

Prints one JSON object a scenario, {"scenario", "ok", "detail"}. As `load` it sends a message and
completes it, again and again on the same two links, and prints {"round"} for each or {"error"} and
begins anew; ends with its input. CA names the file that certificates are verified with; AUTHORITY,
TENANT, APPLICATION and SECRET are the credential; without them it is the environment's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack

from azure.core.credentials import TokenCredential
from azure.identity import ClientSecretCredential, DefaultAzureCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

HOST, QUEUE, *CHOSEN = sys.argv[1:]
CA = os.environ["CA"]
PATIENCE_S = 120
PAUSE_S = 0.2


def log_in() -> TokenCredential:
    """Return the credential."""
    if "AUTHORITY" not in os.environ:
        return DefaultAzureCredential(connection_verify=CA)
    return ClientSecretCredential(
        os.environ["TENANT"],
        os.environ["APPLICATION"],
        os.environ["SECRET"],
        authority=os.environ["AUTHORITY"],
        disable_instance_discovery=True,
        connection_verify=CA,
    )


credential = log_in()


def client() -> ServiceBusClient:
    """A client that does not retry."""
    return ServiceBusClient(
        HOST.partition(":")[0],
        credential,
        custom_endpoint_address=f"sb://{HOST}",
        transport_type=TransportType.Amqp,
        connection_verify=CA,
        retry_total=0,
    )


def messages() -> None:
    """Send, receive, complete."""
    with client() as bus:
        with bus.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with bus.get_queue_receiver(QUEUE, max_wait_time=PATIENCE_S) as receiver:
            (message,) = receiver.receive_messages()
            assert str(message) == "hello"
            receiver.renew_message_lock(message)
            receiver.complete_message(message)


def sessions() -> None:
    """Send into a session, accept it, keep a state."""
    with client() as bus:
        with bus.get_queue_sender(f"{QUEUE}-sessions") as sender:
            sender.send_messages(ServiceBusMessage("hello", session_id="one"))
        with bus.get_queue_receiver(
            f"{QUEUE}-sessions", session_id="one", max_wait_time=PATIENCE_S
        ) as receiver:
            (message,) = receiver.receive_messages()
            receiver.session.set_state("seen")
            receiver.complete_message(message)
            assert receiver.session.get_state() == b"seen"


def administration() -> None:
    """Make a queue that forwards, change it, list it, delete it."""
    name = f"{QUEUE}-made"
    with ServiceBusAdministrationClient(HOST, credential, connection_verify=CA) as admin:
        made = admin.create_queue(name, forward_to=QUEUE)
        made.max_delivery_count = 3
        admin.update_queue(made)
        assert name in [each.name for each in admin.list_queues()]
        assert admin.get_queue(name).max_delivery_count == 3
        admin.delete_queue(name)


def say(**fact: object) -> None:
    """Print a line."""
    print(json.dumps(fact), flush=True)


def load() -> None:
    """Send and complete until the input ends."""
    ended, count = threading.Event(), 0

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    while not ended.is_set():
        try:
            with ExitStack() as stack:
                bus = stack.enter_context(client())
                sender = stack.enter_context(bus.get_queue_sender(QUEUE))
                receiver = stack.enter_context(bus.get_queue_receiver(QUEUE))
                while not ended.is_set():
                    sender.send_messages(ServiceBusMessage(str(count)))
                    for message in receiver.receive_messages(1, max_wait_time=PATIENCE_S):
                        receiver.complete_message(message)
                    say(round=count)
                    count += 1
                    time.sleep(PAUSE_S)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")
            time.sleep(1)


SCENARIOS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (messages, sessions, administration)
}

if __name__ == "__main__":
    if CHOSEN == ["load"]:
        load()
        sys.exit()
    for name in CHOSEN or SCENARIOS:
        try:
            SCENARIOS[name]()
            say(scenario=name, ok=True, detail="")
        except Exception:
            say(scenario=name, ok=False, detail=traceback.format_exc())
