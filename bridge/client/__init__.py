"""The Python library on RabbitMQ under the names of azure-servicebus; synchronous.

`bridge.client.aio` is the asynchronous library. docs/library.md lists the differences from the SDK.
"""

from bridge.client.batch import ServiceBusMessageBatch
from bridge.client.connection_string import (
    ServiceBusConnectionStringProperties,
    parse_connection_string,
)
from bridge.client.constants import (
    NEXT_AVAILABLE_SESSION,
    AmqpMessageBodyType,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    TransportType,
)
from bridge.client.messages import ServiceBusMessage
from bridge.client.received_message import ServiceBusReceivedMessage
from bridge.client.sync.client import ServiceBusClient
from bridge.client.sync.receiver import ServiceBusReceiver
from bridge.client.sync.renewer import AutoLockRenewer
from bridge.client.sync.sender import ServiceBusSender
from bridge.client.sync.session import ServiceBusSession

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AmqpMessageBodyType",
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusConnectionStringProperties",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "TransportType",
    "parse_connection_string",
]
