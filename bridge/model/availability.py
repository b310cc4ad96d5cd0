"""Whether an entity takes messages and gives any now: by its status, and unless it is held.

A migration holds an entity while it imports messages that keep their numbers. Meanwhile no bridge
numbers, activates, delivers or forwards there, and nothing is sent: a number of somebody else's
would stand in between. A topic is held by itself, and each of its subscriptions by itself.
"""

from __future__ import annotations

from bridge.model.entity import Entity
from bridge.model.errors import (
    ArgumentError,
    EntityConflict,
    EntityDisabled,
    ServerBusy,
    ServiceBusError,
)

RUN_CHARACTERS_MAX = 64
"""The longest name of the run that holds an entity."""


def refusal_of_sends(entity: Entity) -> ServiceBusError | None:
    """Return why nothing can be sent, scheduled or cancelled now; `None` when it can."""
    if not entity.status.allows_sends:
        text = f"Messaging entity '{entity.path}' is currently disabled for Send operations."
        return EntityDisabled(text)
    return ServerBusy(held_text(entity)) if entity.held else None


def refusal_of_receives(entity: Entity) -> ServiceBusError | None:
    """Return why nothing can be received now; `None` when it can. What is locked can be settled.

    Never ServerBusy: Python's SDK keeps a receiver whose link ends with that, and it gets nothing
    more (azure-servicebus 7.15); one that is disabled attaches again.
    """
    if not entity.status.allows_receives:
        return EntityDisabled(disabled_text(entity))
    return EntityDisabled(held_text(entity)) if entity.held else None


def disabled_text(entity: Entity) -> str:
    """Return the text: the entity's status forbids the operation."""
    return f"Messaging entity '{entity.path}' is currently disabled."


def held_text(entity: Entity) -> str:
    """Return the text: a migration holds the entity."""
    return (
        f"Messaging entity '{entity.path}' is held by the migration '{entity.held}': it takes and "
        "gives no messages until that ends the hold. Try again later."
    )


def check_held(entity: Entity, run: str) -> None:
    """Check that a run holds an entity.

    Raises:
        EntityDisabled: another run holds it; the text names that.
        EntityConflict: no run holds it.
    """
    if entity.held and entity.held != run:
        raise EntityDisabled(held_text(entity))
    if not entity.held:
        raise EntityConflict(
            f"Messaging entity '{entity.path}' is not held by the migration '{run}': only the run "
            "that holds it imports messages and states of sessions."
        )


def check_run(run: object) -> str:
    """Return the name of a run, as a request gives it.

    Raises:
        ArgumentError: it is no name.
    """
    if (
        not isinstance(run, str)
        or not 1 <= len(run) <= RUN_CHARACTERS_MAX
        or not all(each.isascii() and (each.isalnum() or each in "-._") for each in run)
    ):
        raise ArgumentError(
            f"The run that holds an entity has a name of 1 to {RUN_CHARACTERS_MAX} letters, "
            "digits, '-', '.' and '_'."
        )
    return run
