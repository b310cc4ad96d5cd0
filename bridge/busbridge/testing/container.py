"""`bridge.testing.container` under the wheel's own name."""

from bridge.testing.container import *
