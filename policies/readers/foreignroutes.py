"""Where messages of a foreign broker go: its exchanges and bindings, asked by the reader."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.topology.names import SINK
from bridge.topology.parts import DEATH_HEADER
from policies.readers.jsontext import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What a definitions file says about one vhost."""

    vhost: str
    version: str
    queues: list[Node]
    exchanges: list[Node]
    bindings: list[Node]
    policies: list[Node]

    def exchange_type(self, name: str) -> str:
        """Return the type of an exchange, or ""."""
        return next((e["type"].text for e in self.exchanges if e["name"].text == name), "")

    def bindings_of(self, exchange: str, queue: str = "") -> list[Node]:
        """Return the bindings of an exchange, all or those to a queue."""
        return [
            each
            for each in self.bindings
            if each["source"].text == exchange and queue in ("", each["destination"].text)
        ]

    def dead_letter_targets(self, exchange: str, key: str) -> list[str]:
        """Return the queues, or exchanges behind the exchange, that dead letters reach."""
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
        """Whether what expires is kept: unless the bridge's layout sends it to the sink."""
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
