"""A foreign broker's queues and exchanges, as the nearest entities of Service Bus.

The output of `busbridge policies` for plain RabbitMQ has no definitions of entities. The names of
its queues (`TOPIC/subscriptions/NAME`) tell subscriptions from queues.
"""

from __future__ import annotations

import re

from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import SHORT_NAME_LENGTH_MAX, check_entity_name
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, Capabilities, UnsupportedVersion
from bridge.topology.policy import MEBIBYTE
from policies.readers import filters
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.foreignbroker import Broker, number
from policies.readers.jsontext import Node
from policies.readers.reading import Notes, Reading

SIZE_MAX_MB = 81_920
_LOST_SETTINGS = {
    "max-length": "Service Bus limits the bytes of an entity, not its messages.",
    "max-priority": "Service Bus has no priorities.",
    "single-active-consumer": "Service Bus has sessions instead: see RequiresSession.",
    "queue-mode": "",
    "queue-leader-locator": "",
}
"""Settings with no word in Service Bus; "" is not worth one."""

_SUBSCRIPTION = re.compile(r"(?P<topic>.+)/subscriptions/(?P<name>[^/]+)", re.IGNORECASE)


def read_broker(broker: Broker, notes: Notes) -> Reading:
    """Return the namespace that is nearest to a broker's objects.

    Raises:
        ReadError: the broker's objects have faults; all of them are named.
    """
    reader = _Reader(broker, notes)
    return reader.read()


class _Reader:
    def __init__(self, broker: Broker, notes: Notes) -> None:
        self._broker = broker
        self._notes = notes
        self._draft = NamespaceDraft(notes)
        self._queues = {queue["name"].text for queue in broker.queues}

    def read(self) -> Reading:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", self._broker.vhost):
            self._draft.name = self._broker.vhost
        if self._broker.is_of_the_bridge:
            self._notes.leave_out(
                self._broker.queues[0].place,
                "",
                "definitions",
                "The definitions of the bridge's entities are not in the file: an export of one "
                "vhost leaves global parameters out. Export the whole broker. Read from the queues "
                "alone, only what RabbitMQ does itself is known.",
            )
        for policy in self._broker.odd_policies:
            message = (
                f"The policy {policy['name'].text!r} is left out: its pattern is not understood."
            )
            self._lost(policy, "", "pattern", message)
        for queue in self._broker.queues:
            self._queue(queue)
        for exchange in self._broker.exchanges:
            self._exchange(exchange)
        return self._draft.finish()

    def _queue(self, node: Node) -> None:
        name = node["name"].text
        kind = node["arguments"]["x-queue-type"].text or node["type"].text or "classic"
        if "/$" in name or name.startswith("$"):
            return
        if kind == "stream":
            self._lost(node, name, "x-queue-type", f"The stream {name!r} is left out.")
            return
        if not self._is_name(node, name, "queue"):
            return
        subscription = _SUBSCRIPTION.fullmatch(name)
        if subscription and self._broker.exchange_type(subscription["topic"]):
            draft = self._own_subscription(subscription["topic"], subscription["name"], node)
        else:
            draft = self._draft.queue(name, node.place)
        settings = self._broker.settings_of(node, name, kind)
        for setting, value in settings.items():
            self._set(draft, setting, value)
        self._limit(draft, settings, kind)
        self._dead_letters(draft, name, settings)
        for flag in ("auto_delete", "exclusive"):
            if node[flag].value is True:
                self._lost(
                    node, name, flag, f"The queue {name!r} is {flag}: its end is its user's."
                )

    def _own_subscription(self, topic: str, name: str, node: Node) -> EntityDraft:
        """Return the draft of a subscription's queue, with a rule for each binding."""
        if self._draft.find(topic) is None:
            self._draft.topic(topic, node.place)
        draft = self._draft.subscription(topic, name, node.place)
        for binding in self._broker.bindings_of(topic, node["name"].text):
            self._rule(draft, binding)
        if not draft.rules and not self._broker.is_of_the_bridge:
            filters.add_rule(draft, model.DEFAULT_RULE.name, model.FalseFilter(), "", node.place)
        return draft

    def _set(self, draft: EntityDraft, setting: str, node: Node) -> None:
        match setting, node.value:
            case "message-ttl", int(ttl_ms):
                low_ms = model.SECOND_MS
                self._note_raised(draft, node, setting, ttl_ms, low_ms)
                draft.fields["default_message_time_to_live_ms"] = max(ttl_ms, low_ms)
            case "expires", int(expires_ms):
                low_ms = 5 * model.MINUTE_MS
                self._note_raised(draft, node, setting, expires_ms, low_ms)
                draft.fields["auto_delete_on_idle_ms"] = max(expires_ms, low_ms)
            case "max-length-bytes", int(size):
                size_mb = min(max(-(-size // MEBIBYTE), 1), SIZE_MAX_MB)
                if size_mb * MEBIBYTE != size:
                    self._notes.finding(
                        node.place,
                        draft.path,
                        "MaxSizeInMegabytes",
                        f"{draft.title}: max-length-bytes {size} becomes {size_mb} MB.",
                        grade="approximate",
                    )
                owner = self._draft.find(draft.topic) if draft.topic else draft
                assert owner is not None
                owner.fields["max_size_mb"] = size_mb
            case _, _ if _LOST_SETTINGS.get(setting):
                message = f"{draft.title}: {setting} is left out. {_LOST_SETTINGS[setting]}"
                self._lost(node, draft.path, setting, message)

    def _note_raised(
        self, draft: EntityDraft, node: Node, setting: str, value_ms: int, low_ms: int
    ) -> None:
        if value_ms < low_ms:
            self._notes.finding(
                node.place,
                draft.path,
                setting,
                f"{draft.title}: {setting} is {value_ms} ms; Service Bus takes {low_ms} ms and "
                "more.",
                grade="approximate",
            )

    def _limit(self, draft: EntityDraft, settings: dict[str, Node], kind: str) -> None:
        """N + 1 deliveries at a `delivery-limit` of N; none means 21 on 4.x, else for ever."""
        given = settings.get("delivery-limit")
        limit = number(given) if given is not None else self._default_limit(kind)
        if limit is not None and 0 <= limit < DELIVERY_LIMIT_MAX:
            draft.fields["max_delivery_count"] = limit + 1
            return
        draft.fields["max_delivery_count"] = model.DELIVERY_COUNT_MAX
        self._notes.finding(
            given.place if given else draft.place,
            draft.path,
            "MaxDeliveryCount",
            f"{draft.title} delivers a message without a limit; in Service Bus it is "
            f"{model.DELIVERY_COUNT_MAX} times at most.",
            grade="approximate",
        )

    def _default_limit(self, kind: str) -> int | None:
        if kind != "quorum":
            return None
        try:
            return Capabilities.of(self._broker.version).delivery_limit_default
        except UnsupportedVersion:
            return None

    def _dead_letters(self, draft: EntityDraft, queue: str, settings: dict[str, Node]) -> None:
        exchange = settings.get("dead-letter-exchange")
        if exchange is None:
            return
        keeps = self._broker.keeps_expired(exchange.text)
        draft.fields["dead_lettering_on_message_expiration"] = keeps
        key = settings.get("dead-letter-routing-key")
        targets = self._broker.dead_letter_targets(exchange.text, key.text if key else queue)
        if any(target.startswith(f"{queue.lower()}/$") for target in targets):
            return
        others = [target for target in targets if "$" not in target]
        if len(others) == 1:
            draft.fields["forward_dead_lettered_messages_to"] = others[0]
            draft.places["forward_dead_lettered_messages_to"] = exchange.place
            return
        self._notes.finding(
            exchange.place,
            draft.path,
            "ForwardDeadLetteredMessagesTo",
            f"{draft.title}: dead letters go by {exchange.text!r} to "
            + (" and ".join(map(repr, others)) or "no queue of the input")
            + "; here they stay in its dead-letter queue.",
            grade="approximate",
        )

    def _exchange(self, node: Node) -> None:
        """Take a fanout or headers exchange as a topic that forwards to the bound queues."""
        name = node["name"].text
        bindings = self._broker.bindings_of(name)
        if not name or name.startswith("amq.") or "$" in name or not bindings:
            return
        if self._broker.is_dead_letter_exchange(name) or name in self._queues:
            return
        if self._draft.find(name) is not None:
            return
        if all(_SUBSCRIPTION.fullmatch(each["destination"].text) for each in bindings):
            return
        if node["type"].text not in ("fanout", "headers"):
            self._lost(
                node,
                name,
                "type",
                f"The {node['type'].text} exchange {name!r} is left out: Service Bus has no "
                "routing keys.",
            )
            return
        if not self._is_name(node, name, "exchange"):
            return
        self._draft.topic(name, node.place)
        for binding in bindings:
            self._binding(name, node["type"].text, binding)

    def _binding(self, topic: str, kind: str, node: Node) -> None:
        queue = node["destination"].text
        if node["destination_type"].text != "queue" or queue not in self._queues:
            self._lost(node, topic, "binding", f"The binding of {topic!r} to {queue!r} is lost.")
            return
        if len(queue) > SHORT_NAME_LENGTH_MAX or "/" in queue:
            message = f"{queue!r} cannot be the name of a subscription; its binding is lost."
            self._lost(node, topic, "binding", message)
            return
        draft = self._draft.find_subscription(topic, queue)
        if draft is None:
            draft = self._draft.subscription(topic, queue, node.place)
            draft.fields["forward_to"] = queue
            draft.places["forward_to"] = node.place
        if kind == "headers":
            self._rule(draft, node)

    def _rule(self, draft: EntityDraft, node: Node) -> None:
        """Add the rule that stands for a binding of a headers exchange."""
        arguments = node["arguments"].members
        if not node["arguments"]["x-match"].text.startswith("all") and len(arguments) > 2:
            message = f"{draft.title}: a binding of x-match any becomes one of all its headers."
            self._lost(node, draft.path, "x-match", message)
        given = {key: each.plain() for key, each in arguments.items() if not key.startswith("x-")}
        found: model.Filter = filters.correlation({}, given) if given else model.TrueFilter()
        filters.add_rule(draft, f"binding-{len(draft.rules) + 1}", found, "", node.place)

    def _is_name(self, node: Node, name: str, what: str) -> bool:
        try:
            check_entity_name(name)
        except ServiceBusError:
            message = f"The {what} {name!r} is left out: Service Bus takes no such name."
            self._lost(node, name, "name", message)
            return False
        return True

    def _lost(self, node: Node, entity: str, prop: str, message: str) -> None:
        self._notes.finding(node.place, entity, prop, message)
