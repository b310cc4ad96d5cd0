"""Values of application properties in options: `--property NAME=VALUE`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bridge.commands.errors import WrongInput


def properties_of(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of options by name.

    Raises:
        WrongInput: one is no NAME=VALUE.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise WrongInput(f"--property {text!r}: write NAME=VALUE.")
        found[name] = value_in(value)
    return found


def value_in(text: str) -> Any:
    """Return what a text says as JSON, or else the text; NaN is no JSON."""
    try:
        return json.loads(text, parse_constant=lambda name: name)
    except (ValueError, RecursionError):
        return text
