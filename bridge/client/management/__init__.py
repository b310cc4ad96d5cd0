"""Administration over RabbitMQ, under the names of azure.servicebus.management; synchronous.

A bridge of the virtual host carries it out, by the rules and with the errors that it has for the
administration clients of the Azure SDKs.
"""

from bridge.client.management.client import ItemPaged, ServiceBusAdministrationClient
from bridge.client.management.enums import (
    AccessRights,
    ApiVersion,
    EntityAvailabilityStatus,
    EntityStatus,
    MessagingSku,
    NamespaceType,
)
from bridge.client.management.errors import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from bridge.client.management.properties import (
    AuthorizationRule,
    NamespaceProperties,
    QueueProperties,
    SubscriptionProperties,
    TopicProperties,
)
from bridge.client.management.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from bridge.client.management.runtime import (
    MessageCountDetails,
    QueueRuntimeProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
)

__all__ = [
    "AccessRights",
    "ApiVersion",
    "AuthorizationRule",
    "CorrelationRuleFilter",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "HttpResponseError",
    "ItemPaged",
    "MessageCountDetails",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "RuleProperties",
    "ServiceBusAdministrationClient",
    "SqlRuleAction",
    "SqlRuleFilter",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TopicProperties",
    "TopicRuntimeProperties",
    "TrueRuleFilter",
]
