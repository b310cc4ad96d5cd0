"""How commands of `busbridge` name an entity."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model.properties import kind_of


def command_words(entity: model.Entity) -> str:
    """Return an entity as commands name it: `queue orders`, `subscription events red`."""
    names = entity.path.replace("/Subscriptions/", " ")
    return f"{kind_of(entity).value.lower()} {names}"
