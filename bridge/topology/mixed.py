"""Refusing a flavour for a virtual host on which the other flavour was applied before.

RabbitMQ never changes the arguments of a queue, and each flavour needs its own arguments.
"""

from __future__ import annotations

from bridge.topology.names import EXPIRED_UNNUMBERED
from bridge.topology.parts import CONSUMER_TIMEOUT_ARGUMENT, SCHEMA_ARGUMENT
from bridge.topology.resources import Topology

_NAMED_MAX = 3


def refusal(there: Topology, vhost: str, *, wants_plain: bool) -> str:
    """Return why a flavour cannot be applied to a virtual host, with the steps to take, or ""."""
    if wants_plain:
        others = (
            [EXPIRED_UNNUMBERED]
            if any(queue.name == EXPIRED_UNNUMBERED for queue in there.queues)
            else []
        )
    else:
        others = _plain_queues(there)
    if not others:
        return ""
    more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
    there_now = "without the bridge" if not wants_plain else "with the bridge"
    option = " --flavour plain" if wants_plain else ""
    run = (
        "Point the applications to RabbitMQ's virtual host NEW"
        if wants_plain
        else "Run the bridge with NEW in --rabbitmq-url, and point the applications to it"
    )
    return (
        f"Nothing was changed: the virtual host {vhost!r} holds queues that work {there_now} "
        f"({', '.join(others[:_NAMED_MAX])}{more}), and RabbitMQ never changes a queue's "
        "arguments. Do one of these:\n"
        "A. Take a new virtual host; the old one goes on meanwhile.\n"
        "   1. rabbitmqctl add_vhost NEW; rabbitmqctl set_permissions --vhost NEW USER "
        '".*" ".*" ".*"\n'
        f"   2. busbridge policies apply INPUT{option} --vhost NEW\n"
        f"   3. {run}, senders first.\n"
        "   4. When the old queues are empty: busbridge policies remove --allow --vhost "
        f"{vhost}\n"
        "B. Empty this one.\n"
        "   1. Stop the senders; receive all there is, dead letters too "
        f"(rabbitmqctl --vhost {vhost} list_queues name messages).\n"
        f"   2. busbridge policies remove --allow --vhost {vhost}\n"
        f"   3. busbridge policies apply INPUT{option} --vhost {vhost}"
    )


def _plain_queues(there: Topology) -> list[str]:
    """Return the names of the entities' queues that the plain flavour has made."""
    return [
        queue.name
        for queue in there.queues
        if SCHEMA_ARGUMENT in queue.arguments
        and "$" not in queue.name.removeprefix("$amq.")
        and CONSUMER_TIMEOUT_ARGUMENT not in queue.arguments
    ]
