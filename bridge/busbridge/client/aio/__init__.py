"""`bridge.client.aio` under the wheel's own name."""

from bridge.client.aio import *
