"""Drafts: entities while a reader collects their properties, and the namespace of them.

A reader sets properties by Azure's names in any order; `finish` builds the model. Each property is
tried by itself first, so that every value that Service Bus would refuse is reported, not only the
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.properties import MAKERS, PROPERTIES, EntityKind
from policies.errors import Position
from policies.readers.reading import Notes, Reading


@dataclass(slots=True)
class EntityDraft:
    """A queue, topic or subscription that is being read."""

    kind: EntityKind
    name: str
    place: Position
    notes: Notes
    topic: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    places: dict[str, Position] = field(default_factory=dict)
    rules: list[model.Rule] = field(default_factory=list)
    authorization_rules: list[model.AuthorizationRule] = field(default_factory=list)
    has_unknown_rules: bool = False
    """Rules were left out: it does not get Azure's default, which takes every message."""

    @property
    def path(self) -> str:
        """The entity's path, as Azure writes it."""
        is_subscription = self.kind is EntityKind.SUBSCRIPTION
        return f"{self.topic}/Subscriptions/{self.name}" if is_subscription else self.name

    @property
    def title(self) -> str:
        """How messages name the entity."""
        return f"{self.kind.value} {self.path!r}"

    def set(self, name: str, value: object, place: Position) -> None:
        """Set a property by Azure's name; `None` and a blank text leave Azure's default."""
        known = PROPERTIES[name]
        assert self.kind in known.kinds
        if value is None or (isinstance(value, str) and not value.strip()):
            return
        try:
            read = known.read(value)
        except ValueError as error:
            self.notes.fault(place, f"{self.title}: {name} is {value!r};", f"{error}.")
            return
        if read is None:
            return
        self.fields[known.field] = read
        self.places[known.field] = place

    def set_default(self, name: str, value: object) -> None:
        """Set a default that differs from Azure's, unless the property is set."""
        self.fields.setdefault(PROPERTIES[name].field, value)

    def add_rule(self, rule: model.Rule, place: Position) -> None:
        """Add a rule; a second rule of the same name is a fault."""
        if any(rule.name.lower() == known.name.lower() for known in self.rules):
            self.notes.fault(
                place,
                f"{self.title} has two rules of the name {rule.name!r}.",
                "Rename or remove one of them.",
            )
        self.rules.append(rule)

    def leave_out_rule(self, name: str, place: Position, why: str) -> None:
        """Note a rule that is left out; a subscription with no other rule gets no message."""
        self.has_unknown_rules = True
        self.notes.finding(
            place,
            self.path,
            f"Rule {name}",
            f"{self.title}, rule {name!r} is left out: {why}. The subscription gets no message "
            "by it.",
        )

    def note_unknown(self, key: str, place: Position) -> None:
        """Note a property that Service Bus does not have."""
        message = f"{self.title}: {key} is not known; it is left out."
        self.notes.finding(place, self.path, key, message)

    def note_client_scope(self, key: str, place: Position) -> None:
        """Note a subscription that only one JMS client may use in Service Bus."""
        message = f"{self.title} is scoped to a JMS client; here every client sees it."
        self.notes.finding(place, self.path, key, message)

    def build(self, **more: object) -> Any:
        """Return the model's entity, or `None` after noting each value that is refused."""
        before = len(self.notes.faults)
        if self._made({}, self.place) is None:
            return None
        for known, value in self.fields.items():
            self._made({known: value}, self.places.get(known, self.place))
        if len(self.notes.faults) > before:
            return None
        whole = self.fields | more
        if self.rules or self.has_unknown_rules:
            whole["rules"] = tuple(self.rules)
        if self.authorization_rules:
            whole["authorization_rules"] = tuple(self.authorization_rules)
        return self._made(whole, self.place)

    def _made(self, fields: dict[str, Any], place: Position) -> Any:
        topic: dict[str, Any] = (
            {"topic": self.topic} if self.kind is EntityKind.SUBSCRIPTION else {}
        )
        try:
            return MAKERS[self.kind](name=self.name, **topic, **fields)
        except ServiceBusError as error:
            self.notes.fault(place, str(error), "" if "takes" in str(error) else _NAME_REMEDY)
            return None


_NAME_REMEDY = "Change it to what Service Bus takes."


@dataclass(slots=True)
class NamespaceDraft:
    """A namespace that is being read; its entities come in any order."""

    notes: Notes
    name: str = ""
    tier: model.Tier = model.Tier.STANDARD
    authorization_rules: list[model.AuthorizationRule] = field(default_factory=list)
    _entities: dict[tuple[bool, str], EntityDraft] = field(default_factory=dict)

    def set_tier(self, written: str) -> None:
        """Set the tier; a text that names no tier changes nothing."""
        for tier in model.Tier:
            if written.lower() == tier.value.lower():
                self.tier = tier

    def queue(self, name: str, place: Position) -> EntityDraft:
        """Return a new queue's draft; a name that is taken is a fault."""
        return self._new(EntityDraft(EntityKind.QUEUE, name, place, self.notes))

    def topic(self, name: str, place: Position) -> EntityDraft:
        """Return a new topic's draft; a name that is taken is a fault."""
        return self._new(EntityDraft(EntityKind.TOPIC, name, place, self.notes))

    def subscription(self, topic: str, name: str, place: Position) -> EntityDraft:
        """Return a new subscription's draft; its topic may come later."""
        return self._new(EntityDraft(EntityKind.SUBSCRIPTION, name, place, self.notes, topic=topic))

    def find(self, path: str) -> EntityDraft | None:
        """Return an entity's draft, by its path in any case."""
        return self._entities.get((False, path.lower())) or self._entities.get((True, path.lower()))

    def find_subscription(self, topic: str, name: str) -> EntityDraft | None:
        """Return a subscription's draft; a queue may have the same path."""
        return self._entities.get((True, f"{topic}/Subscriptions/{name}".lower()))

    def owner_of_rule(
        self, topic: str, subscription: str, rule: str, place: Position
    ) -> EntityDraft:
        """Return the draft of a rule's subscription; a missing one is made with defaults."""
        found = self.find_subscription(topic, subscription)
        if found is None:
            found = self.subscription(topic, subscription, place)
            self.notes.finding(
                place,
                found.path,
                "Subscription",
                f"{found.title} of rule {rule!r} is not in the input; it is taken with Azure's "
                "defaults. Add it to the input.",
                grade="approximate",
            )
        return found

    def note_missing_rules(self, remedy: str) -> None:
        """Note every subscription without rules, which the input may have left out."""
        for draft in self.subscriptions():
            if not draft.rules:
                self.notes.finding(
                    draft.place,
                    draft.path,
                    "Rules",
                    f"The rules of {draft.title} are not in the input; it takes every message. "
                    f"{remedy}",
                    grade="approximate",
                )

    def subscriptions(self) -> list[EntityDraft]:
        """Return every subscription so far."""
        return [each for each in self._entities.values() if each.kind is EntityKind.SUBSCRIPTION]

    def _new(self, draft: EntityDraft) -> EntityDraft:
        key = (draft.kind is EntityKind.SUBSCRIPTION, draft.path.lower())
        if key in self._entities:
            first = self._entities[key]
            self.notes.fault(
                draft.place,
                f"{draft.title} has the name of {first.title} at {first.place}; "
                "names are not case-sensitive.",
                "Rename or remove one of them.",
            )
            return draft
        self._entities[key] = draft
        return draft

    def finish(self) -> Reading:
        """Return the namespace.

        Raises:
            ReadError: with every fault that was noted, here and by the reader.
        """
        drafts = list(self._entities.values())
        self._add_missing_topics(drafts)
        queues = [each.build() for each in drafts if each.kind is EntityKind.QUEUE]
        topics = []
        for topic in (each for each in drafts if each.kind is EntityKind.TOPIC):
            subscriptions = [
                built
                for each in drafts
                if each.topic.lower() == topic.name.lower()
                and each.kind is EntityKind.SUBSCRIPTION
                and (built := each.build()) is not None
            ]
            topics.append(topic.build(subscriptions=tuple(subscriptions)))
        self.notes.check()
        namespace = model.Namespace(
            **({"name": self.name} if self.name else {}),
            tier=self.tier,
            queues=tuple(queues),
            topics=tuple(topics),
            authorization_rules=tuple(self.authorization_rules),
        )
        self._find_missing_targets(drafts)
        return Reading(
            namespace=namespace,
            findings=tuple(self.notes.findings),
            left_out=tuple(self.notes.left_out),
        )

    def _add_missing_topics(self, drafts: list[EntityDraft]) -> None:
        for subscription in [each for each in drafts if each.kind is EntityKind.SUBSCRIPTION]:
            topic = self.find(subscription.topic)
            if topic is None:
                topic = self.topic(subscription.topic, subscription.place)
                drafts.append(topic)
                self.notes.finding(
                    subscription.place,
                    subscription.topic,
                    "Topic",
                    f"The topic {subscription.topic!r} of {subscription.title} is not in the "
                    "input; it is taken with Azure's defaults. Add it to the input.",
                    grade="approximate",
                )

    def _find_missing_targets(self, drafts: list[EntityDraft]) -> None:
        for draft in drafts:
            for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
                target = draft.fields.get(PROPERTIES[name].field)
                if isinstance(target, str) and target and self.find(target) is None:
                    self.notes.finding(
                        draft.places[PROPERTIES[name].field],
                        draft.path,
                        name,
                        f"{draft.title} forwards to {target!r}, which is not in the input. "
                        "Service Bus forwards only within a namespace: add that entity.",
                    )
