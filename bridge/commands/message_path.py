"""The entity whose messages a command works on, as Azure writes its path."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bridge.commands.errors import WrongInput

DEAD_LETTER = "/$DeadLetterQueue"


def add_path(
    parser: argparse.ArgumentParser, *, is_sent_to: bool = False, has_dead_letter: bool = True
) -> None:
    """Add the argument that names a queue or a subscription, or a topic for what is sent.

    Args:
        has_dead_letter: with the option for its dead-letter queue.
    """
    if is_sent_to:
        parser.add_argument("entity", metavar="ENTITY", help="the name of a queue or a topic")
        return
    parser.add_argument(
        "entity", nargs="+", metavar="ENTITY",
        help="QUEUE, TOPIC/Subscriptions/NAME, or TOPIC NAME",
    )  # fmt: skip
    if has_dead_letter:
        parser.add_argument(
            "--dead-letter", "-d", action="store_true", help="its dead-letter queue instead"
        )


def path_in(words: Sequence[str], *, is_dead_letter: bool = False) -> str:
    """Return the path of a queue, a subscription, or one's dead-letter queue.

    Args:
        words: the path, or the names of a topic and of its subscription.

    Raises:
        WrongInput: it is neither.
    """
    if len(words) > 2 or not all(each.strip("/") for each in words):
        raise WrongInput(
            f"{' '.join(words)!r} is no entity: write QUEUE, TOPIC/Subscriptions/NAME, or "
            "TOPIC NAME."
        )
    path = words[0].strip("/")
    if len(words) == 2:
        path = f"{path}/Subscriptions/{words[1].strip('/')}"
    return path + DEAD_LETTER if is_dead_letter and not is_dead_letter_path(path) else path


def is_dead_letter_path(path: str) -> bool:
    """Return whether a path is that of a dead-letter queue."""
    return path.lower().endswith(DEAD_LETTER.lower())
