"""Paths into a body of JSON: `$.a.b`, `$.items[0]`, `$['a name']`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_STEP: Final = re.compile(
    r"""\.(?P<name>[^\s.\[\]'"*$?@]+)
      | \[(?P<index>[0-9]{1,9})\]
      | \['(?P<single>[^']*)'\]
      | \["(?P<double>[^"]*)"\]""",
    re.VERBOSE,
)


class PathRefused(ValueError):
    """Error for a text that is no path; the text says where it stops being one."""


@dataclass(frozen=True, slots=True)
class BodyPath:
    """A path; each step is a name in an object, or a place in an array, from 0."""

    text: str
    steps: tuple[str | int, ...]

    @classmethod
    def read(cls, text: str) -> BodyPath:
        """Return the path of a text.

        Raises:
            PathRefused: it is none.
        """
        if not text.startswith("$"):
            raise PathRefused(f"the path {text!r} does not begin with $, as $.a.b does")
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise PathRefused(
                    f"the path {text!r} cannot be read at its character {at + 1}: a step is "
                    '.name, [0] or ["a name"]'
                )
            index = found["index"]
            named = next((found[each] for each in ("name", "single", "double") if found[each]), "")
            steps.append(named if index is None else int(index))
            at = found.end()
        return cls(text, tuple(steps))

    def find(self, value: Any) -> Any:
        """Return what is there.

        Raises:
            KeyError: nothing is.
        """
        for step in self.steps:
            match value, step:
                case dict(), str() if step in value:
                    value = value[step]
                case list(), int() if step < len(value):
                    value = value[step]
                case _:
                    raise KeyError(self.text)
        return value
