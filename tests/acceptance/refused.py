"""Tokens that a bridge has refused, by its log."""

from __future__ import annotations

import re

from tests.fixtures.bridge import Bridge


def refused_tokens(bridge: Bridge, entity: str) -> int:
    """Return how many tokens for an entity were refused for their signature."""
    form = rf"token\.refused .*audience='?\S*/{re.escape(entity)}/?'? .*InvalidSignature"
    return sum(re.search(form, line) is not None for line in bridge.lines)
