"""What the SDK has and this library has not: refused by name, never approximated."""

from __future__ import annotations

from typing import NoReturn


def unsupported(name: str, instead: str = "use the Azure SDK through the gateway") -> NoReturn:
    """Refuse something of the SDK's.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(f"bridge.client does not support {name}: {instead}.")
