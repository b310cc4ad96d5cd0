"""`bridge.client.management` under the wheel's own name."""

from bridge.client.management import *
