"""`bridge.client.exceptions` under the wheel's own name."""

from bridge.client.exceptions import *
