"""Names of entities as users write them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from bridge.commands.errors import WrongInput

_STEPS = re.compile(r"/(?:Subscriptions|Rules)/", re.IGNORECASE)

FORMS = {
    "queue": "NAME",
    "topic": "NAME",
    "subscription": "TOPIC/Subscriptions/NAME",
    "rule": "TOPIC/Subscriptions/NAME/Rules/NAME",
}
"""How the path of each kind is written."""

KINDS = ("queue", "topic", "subscription", "rule")


def add_entity(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the argument that names an entity of a kind."""
    words = {"subscription": "TOPIC NAME", "rule": "TOPIC SUBSCRIPTION NAME"}
    if kind in words:
        meaning = f"{words[kind]}, or {FORMS[kind]}"
        parser.add_argument("entity", nargs="+", metavar="NAME", help=meaning)
    else:
        parser.add_argument("entity", nargs=1, metavar="NAME", help=f"the {kind}'s name")


def names_in(words: Sequence[str], kind: str = "") -> tuple[str, ...]:
    """Return the names in a path, or in words: `events/Subscriptions/audit` or `events audit`.

    Args:
        kind: what it must be a path of; "" for anything.

    Raises:
        WrongInput: it is no path of this kind.
    """
    path = words[0].strip("/")
    names = tuple(_STEPS.split(path)) if len(words) == 1 else tuple(words)
    wanted = {"queue": 1, "topic": 1, "subscription": 2, "rule": 3}.get(kind)
    if (wanted and len(names) != wanted) or len(names) > 3 or not all(names):
        what = f"a {kind}" if kind else "an entity"
        form = FORMS.get(kind) or ", ".join(dict.fromkeys(FORMS.values()))
        raise WrongInput(f"{' '.join(words)!r} is no name of {what}: write {form}.")
    if "$deadletterqueue" in path.lower():
        raise WrongInput(f"{path!r} has no properties of its own: name the entity itself.")
    return names
