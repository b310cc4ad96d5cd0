"""Output of `terraform show -json` (or `tofu show -json`) for a plan or a state.

The resources are those of the provider azurerm, with the names of versions 2 to 4. A plan has no
ids of resources that it will make: then its configuration says which topic or subscription a
resource belongs to.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bridge.model.entity import Filter
from bridge.model.properties import PROPERTIES
from policies.readers import access, filters
from policies.readers.azureresource import entity_name
from policies.readers.choice import of_one_namespace
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.jsontext import Node
from policies.readers.reading import Notes, Reading
from policies.readers.terraformplan import Plan, Resource

_PREFIX = "azurerm_servicebus_"

NAMES = {
    "auto_delete_on_idle": "AutoDeleteOnIdle",
    "batched_operations_enabled": "EnableBatchedOperations",
    "dead_lettering_on_filter_evaluation_error": "DeadLetteringOnFilterEvaluationExceptions",
    "dead_lettering_on_message_expiration": "DeadLetteringOnMessageExpiration",
    "default_message_ttl": "DefaultMessageTimeToLive",
    "duplicate_detection_history_time_window": "DuplicateDetectionHistoryTimeWindow",
    "enable_batched_operations": "EnableBatchedOperations",
    "enable_express": "EnableExpress",
    "enable_partitioning": "EnablePartitioning",
    "express_enabled": "EnableExpress",
    "forward_dead_lettered_messages_to": "ForwardDeadLetteredMessagesTo",
    "forward_to": "ForwardTo",
    "lock_duration": "LockDuration",
    "max_delivery_count": "MaxDeliveryCount",
    "max_message_size_in_kilobytes": "MaxMessageSizeInKilobytes",
    "max_size_in_megabytes": "MaxSizeInMegabytes",
    "partitioning_enabled": "EnablePartitioning",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "requires_session": "RequiresSession",
    "status": "Status",
    "support_ordering": "SupportOrdering",
}
"""The provider's names and Azure's; `enable_...` until version 3, `..._enabled` since 4."""

_OF_RULES = {"action", "correlation_filter", "filter_type", "sql_filter"}
_IGNORED = {
    "id",
    "location",
    "name",
    "namespace_id",
    "namespace_name",
    "resource_group_name",
    "tags",
    "timeouts",
    "topic_id",
    "topic_name",
}


def is_this(document: Node) -> bool:
    """Whether a JSON document is Terraform's output for a plan or state."""
    return "format_version" in document and ("planned_values" in document or "values" in document)


def read_document(document: Node, source: str, *, namespace: str | None = None) -> Reading:
    """Return the namespace of a parsed plan or state; `namespace` names one of several."""
    plan, notes = Plan.of(document), Notes(source)
    chosen = of_one_namespace(
        notes,
        plan.resources,
        lambda each: _namespace_of(plan, each),
        lambda each: each.values.place,
        namespace,
    )
    return _Reader(replace(plan, resources=tuple(chosen)), notes).read()


_IN_NAMESPACE = re.compile(r"/namespaces/([^/]+)", re.IGNORECASE)


def _namespace_of(plan: Plan, resource: Resource) -> str:
    """Return the name of a resource's namespace; "" when the name is not known."""
    if not resource.kind.startswith(_PREFIX):
        return ""
    if resource.kind == _PREFIX + "namespace":
        return resource.values["name"].text
    if name := resource.values["namespace_name"].text:
        return name
    for owner in ("namespace", "topic", "queue", "subscription"):
        if match := _IN_NAMESPACE.search(resource.values[f"{owner}_id"].text):
            return match[1]
        referred = plan.referred(resource, f"{owner}_id", _PREFIX + owner)
        if referred is not None:
            return _namespace_of(plan, referred)
    return ""


class _Reader:
    def __init__(self, plan: Plan, notes: Notes) -> None:
        self._plan = plan
        self._notes = notes
        self._draft = NamespaceDraft(notes)
        self._drafts: dict[str, EntityDraft] = {}

    def read(self) -> Reading:
        for namespace in self._plan.of_type(_PREFIX + "namespace"):
            self._namespace(namespace)
        for kind, make in (("queue", self._draft.queue), ("topic", self._draft.topic)):
            for each in self._plan.of_type(_PREFIX + kind):
                if name := self._name(each):
                    self._take(each, make(name, each.values.place))
        for subscription in self._plan.of_type(_PREFIX + "subscription"):
            self._subscription(subscription)
        for rule in self._plan.of_type(_PREFIX + "subscription_rule"):
            self._rule(rule)
        for owner in ("namespace", "queue", "topic"):
            for rule in self._plan.of_type(f"{_PREFIX}{owner}_authorization_rule"):
                self._access_rule(rule, owner)
        for other in self._plan.resources:
            self._other(other)
        return self._draft.finish()

    def _namespace(self, resource: Resource) -> None:
        self._draft.name = resource.values["name"].text
        self._draft.set_tier(resource.values["sku"].text)

    def _name(self, resource: Resource) -> str:
        name = resource.values["name"].text
        if not name:
            self._notes.leave_out(
                resource.values.place,
                "",
                "name",
                f"{resource.address} is left out: its name is not known before it is applied. "
                "Read the state instead.",
            )
        return entity_name(name)

    def _take(self, resource: Resource, draft: EntityDraft) -> None:
        self._drafts[resource.address] = draft
        for key, member in resource.values.members.items():
            name = NAMES.get(key)
            if name and draft.kind in PROPERTIES[name].kinds:
                draft.set(name, member.plain(), member.place)
            elif key.startswith("client_scoped_subscription"):
                if member.value is True:
                    draft.note_client_scope(key, member.place)
            elif key not in _IGNORED and member.value not in (None, "", False, [], {}):
                draft.note_unknown(key, member.place)
        for key in self._plan.unknown(resource):
            if key in NAMES:
                self._notes.finding(
                    resource.values.place,
                    draft.path,
                    NAMES[key],
                    f"{draft.title}: {key} is not known before it is applied; Azure's default is "
                    "taken.",
                    grade="approximate",
                )

    def _subscription(self, resource: Resource) -> None:
        name = self._name(resource)
        topic = self._owner(resource, "topic", _PREFIX + "topic")
        if name and topic:
            self._take(resource, self._draft.subscription(topic, name, resource.values.place))

    def _rule(self, resource: Resource) -> None:
        name, values = self._name(resource), resource.values
        draft = self._owner_draft(resource, "subscription")
        if not name:
            if draft is not None:
                draft.leave_out_rule("?", values.place, "its name is not known")
            return
        if draft is None and values["topic_name"].text and values["subscription_name"].text:
            draft = self._draft.owner_of_rule(
                entity_name(values["topic_name"].text),
                values["subscription_name"].text,
                name,
                values.place,
            )
        if draft is None:
            self._lost_owner(resource, "subscription")
            return
        if unknown := self._plan.unknown(resource) & _OF_RULES:
            draft.leave_out_rule(
                name,
                values.place,
                f"{', '.join(sorted(unknown))} is not known before it is applied. Read the state "
                "instead",
            )
            return
        if values["filter_type"].text == "CorrelationFilter":
            block = values["correlation_filter"]
            given = block.items[0] if block.items else block
            fields = {azure: given[own].text for azure, own in filters.CORRELATION_FIELDS.items()}
            properties = {k: each.plain() for k, each in given["properties"].members.items()}
            found: Filter | None = filters.correlation(fields, properties)
        else:
            expression = values["sql_filter"].text
            found = filters.sql(expression) if expression else None
        filters.add_rule(draft, name, found, values["action"].text, values.place)

    def _access_rule(self, resource: Resource, owner: str) -> None:
        name, values = self._name(resource), resource.values
        path, rules = "", self._draft.authorization_rules
        if owner != "namespace":
            entity = self._owner(resource, owner, _PREFIX + owner)
            draft = self._draft.find(entity) if entity else None
            if draft is None:
                if entity:
                    self._lost_owner(resource, owner)
                return
            path, rules = draft.path, draft.authorization_rules
        rights = [right for right in ("send", "listen", "manage") if values[right].value is True]
        access.add(
            self._notes,
            path,
            rules,
            values.place,
            name=name,
            rights=rights,
            primary_key=values["primary_key"].text,
            secondary_key=values["secondary_key"].text,
        )

    def _owner(self, resource: Resource, what: str, wanted: str) -> str:
        """Return the name of the entity that a resource belongs to, or "" with a finding."""
        own_id, own_name = resource.values[f"{what}_id"].text, resource.values[f"{what}_name"].text
        if own_id or own_name:
            return entity_name(own_id.rpartition("/")[2] or own_name)
        referred = self._plan.referred(resource, f"{what}_id", wanted) or self._plan.referred(
            resource, f"{what}_name", wanted
        )
        if referred is None or not referred.values["name"].text:
            self._lost_owner(resource, what)
            return ""
        return entity_name(referred.values["name"].text)

    def _owner_draft(self, resource: Resource, what: str) -> EntityDraft | None:
        written = resource.values[f"{what}_id"].text
        if written:
            *_, topic, _, name = ("", "", *written.split("/"))
            return self._draft.find_subscription(entity_name(topic), name)
        referred = self._plan.referred(resource, f"{what}_id", _PREFIX + what)
        found = self._drafts.get(referred.address) if referred else None
        return found if found is not None and found.kind.value.lower() == what else None

    def _lost_owner(self, resource: Resource, what: str) -> None:
        self._notes.leave_out(
            resource.values.place,
            resource.values["name"].text,
            what,
            f"{resource.address} is left out: its {what} is not in the input. Read the state, or "
            f"the plan of the module that has the {what}.",
        )

    def _other(self, resource: Resource) -> None:
        known = {
            _PREFIX + each
            for each in (
                "namespace",
                "namespace_authorization_rule",
                "queue",
                "queue_authorization_rule",
                "subscription",
                "subscription_rule",
                "topic",
                "topic_authorization_rule",
            )
        }
        is_azapi = resource.kind == "azapi_resource" and (
            resource.values["type"].text.lower().startswith("microsoft.servicebus/")
        )
        if (resource.kind.startswith(_PREFIX) and resource.kind not in known) or is_azapi:
            self._notes.finding(
                resource.values.place,
                resource.values["name"].text,
                resource.kind,
                f"{resource.address} is nothing that RabbitMQ gets from here.",
            )
