"""`bridge.client` under the wheel's own name."""

from bridge.client import *
