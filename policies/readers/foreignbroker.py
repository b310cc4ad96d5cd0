"""One vhost's objects in a definitions file, and what RabbitMQ does with them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.topology.names import SINK
from bridge.topology.parts import DEATH_HEADER
from policies.readers.jsontext import Node

_APPLY_TO = {
    "queues": ("classic", "quorum", "stream"),
    "all": ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A vhost's objects, as the file has them."""

    vhost: str
    version: str
    queues: list[Node]
    exchanges: list[Node]
    bindings: list[Node]
    policies: list[Node]
    operator_policies: list[Node]

    @property
    def is_of_the_bridge(self) -> bool:
        """Whether the vhost has an inbox of the bridge, which keeps full definitions elsewhere.

        The definitions are global parameters, which an export of one vhost leaves out.
        """
        return any(queue["name"].text.endswith("/$inbox") for queue in self.queues)

    @property
    def odd_policies(self) -> list[Node]:
        """The policies whose pattern only Erlang can read."""
        return [policy for policy in self.policies if _compiled(policy) is None]

    def settings_of(self, node: Node, name: str, kind: str) -> dict[str, Node]:
        """Return the settings in force on a queue, under the names of policies (without `x-`).

        They come from its arguments, its policy and its operator policy. Of several numbers for
        one setting RabbitMQ takes the smallest; of other values, the first in this order.
        """
        found = {key.removeprefix("x-"): value for key, value in node["arguments"].members.items()}
        found.pop("queue-type", None)
        for policies in (self.policies, self.operator_policies):
            matching = [policy for policy in policies if _takes(policy, name, kind)]
            best = max(matching, key=lambda policy: number(policy["priority"]), default=None)
            for key, value in best["definition"].members.items() if best else ():
                is_smaller = isinstance(value.value, int) and key in found
                if key not in found or (is_smaller and number(value) < number(found[key])):
                    found[key] = value
        return found

    def exchange_type(self, name: str) -> str:
        """Return the type of an exchange, or ""."""
        return next((e["type"].text for e in self.exchanges if e["name"].text == name), "")

    def bindings_of(self, exchange: str, queue: str = "") -> list[Node]:
        """Return the bindings of an exchange; with `queue`, only the bindings to that queue."""
        return [
            each
            for each in self.bindings
            if each["source"].text == exchange and queue in ("", each["destination"].text)
        ]

    def dead_letter_targets(self, exchange: str, key: str) -> list[str]:
        """Return the queues and exchanges that a dead-letter exchange is bound to, but the sink.

        The default exchange ("") is bound to the queue whose name is the key.
        """
        if not exchange:
            return [key] if any(queue["name"].text == key for queue in self.queues) else []
        is_direct = self.exchange_type(exchange) == "direct"
        found = [
            binding["destination"].text
            for binding in self.bindings_of(exchange)
            if not is_direct or binding["routing_key"].text == key
        ]
        return [each for each in dict.fromkeys(found) if each != SINK]

    def keeps_expired(self, exchange: str) -> bool:
        """Whether no binding of a dead-letter exchange sends expired messages to the sink."""
        return not any(
            binding["arguments"][DEATH_HEADER].text == "expired"
            and binding["destination"].text == SINK
            for binding in self.bindings_of(exchange)
        )

    def is_dead_letter_exchange(self, name: str) -> bool:
        """Whether an exchange is some queue's dead-letter exchange."""
        return any(
            queue["arguments"]["x-dead-letter-exchange"].text == name for queue in self.queues
        ) or any(
            policy["definition"]["dead-letter-exchange"].text == name for policy in self.policies
        )


def number(node: Node) -> int:
    """Return a whole number, or 0 for anything else."""
    return node.value if isinstance(node.value, int) else 0


def _takes(policy: Node, name: str, kind: str) -> bool:
    pattern = _compiled(policy)
    applies = kind in _APPLY_TO.get(policy["apply-to"].text or "all", ())
    return applies and pattern is not None and pattern.search(name) is not None


def _compiled(policy: Node) -> re.Pattern[str] | None:
    try:
        return re.compile(policy["pattern"].text)
    except re.error:
        return None
