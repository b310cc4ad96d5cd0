"""The Python library on RabbitMQ under the names of azure.servicebus.aio; on asyncio."""

from bridge.client.aio.client import ServiceBusClient
from bridge.client.aio.receiver import ServiceBusReceiver
from bridge.client.aio.renewer import AutoLockRenewer
from bridge.client.aio.sender import ServiceBusSender
from bridge.client.aio.session import ServiceBusSession

__all__ = [
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
]
