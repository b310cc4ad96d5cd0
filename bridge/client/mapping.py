"""Objects that are mappings of their attributes too: `dict(queue)`, as with the SDK."""

from __future__ import annotations

from typing import Any


class Mapped:
    """A mapping of the object's attributes."""

    def keys(self) -> list[str]:
        """Return the names."""
        return list(vars(self))

    def values(self) -> list[Any]:
        """Return the values, in the order of the names."""
        return list(vars(self).values())

    def items(self) -> list[tuple[str, Any]]:
        """Return names and values."""
        return list(vars(self).items())

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default for an unknown name."""
        return vars(self).get(key, default)

    def has_key(self, k: str) -> bool:
        """Return whether the name exists."""
        return k in self

    def update(self, *given: Any, **named: Any) -> None:
        """Set values."""
        vars(self).update(*given, **named)

    def __getitem__(self, key: str) -> Any:
        return vars(self)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        vars(self)[key] = value

    def __delitem__(self, key: str) -> None:
        vars(self)[key] = None

    def __contains__(self, key: str) -> bool:
        return key in vars(self)

    def __len__(self) -> int:
        return len(vars(self))
