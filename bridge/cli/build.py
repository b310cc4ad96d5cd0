"""How this copy of the bridge was built."""

from __future__ import annotations

from bridge.wire import basic

BUILD = "python" if basic.__file__.endswith(".py") else "compiled"
"""`compiled`: what every message goes through is machine code (`make compiled`)."""
