"""Administration over RabbitMQ, under the names of azure.servicebus.management; synchronous.

A bridge of the virtual host does the operations, with the same rules and errors as for the
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
