"""A Python library straight on RabbitMQ, under the names of azure-servicebus; synchronous.

`bridge.client.aio` is the asynchronous one. docs/library.md says what differs.
"""

from bridge.client.constants import (
    AmqpMessageBodyType,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from bridge.client.messages import (
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
)
from bridge.client.sync.client import ServiceBusClient
from bridge.client.sync.receiver import ServiceBusReceiver
from bridge.client.sync.renewer import AutoLockRenewer
from bridge.client.sync.sender import ServiceBusSender

__all__ = [
    "AmqpMessageBodyType",
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSubQueue",
]
