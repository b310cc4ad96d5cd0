"""`bridge.client.aio.management` under the wheel's own name."""

from bridge.client.aio.management import *
