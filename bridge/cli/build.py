"""How this copy of the bridge was built."""

from __future__ import annotations

from bridge.broker import transport

BUILD = "python" if transport.__file__.endswith(".py") else "compiled"
"""`compiled`: what every message goes through is machine code (`make compiled`)."""
