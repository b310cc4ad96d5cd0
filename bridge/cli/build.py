"""The build kind of this copy of the bridge."""

from __future__ import annotations

from bridge.wire import basic

BUILD = "python" if basic.__file__.endswith(".py") else "compiled"
"""`compiled`: the code that every message passes through is machine code (`make compiled`)."""
