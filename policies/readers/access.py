"""Authorization rules: from the parts that every format has to the model's values."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model import values
from bridge.model.errors import ServiceBusError
from policies.errors import Position
from policies.readers.reading import Notes


def add(
    notes: Notes,
    owner: str,
    rules: list[model.AuthorizationRule],
    place: Position,
    *,
    name: str,
    rights: object,
    primary_key: str = "",
    secondary_key: str = "",
) -> None:
    """Add a rule to `rules` of an entity (`owner`) or the namespace (""), or note its fault."""
    where = f"{'Entity ' + repr(owner) if owner else 'The namespace'}, authorization rule {name!r}"
    if any(name.lower() == known.name.lower() for known in rules):
        notes.fault(place, f"{where} is there twice.", "Remove one of them.")
        return
    try:
        rule = model.AuthorizationRule(
            name=name,
            primary_key=primary_key,
            secondary_key=secondary_key,
            rights=values.rights(rights),
        )
    except ValueError as error:
        notes.fault(place, f"{where}: its rights are {rights!r};", f"{error}.")
        return
    except ServiceBusError as error:
        notes.fault(place, str(error), "Add them.")
        return
    rules.append(rule)
    if len(rules) == model.AUTHORIZATION_RULES_MAX + 1:
        most = model.AUTHORIZATION_RULES_MAX
        notes.fault(place, f"{where} is one too many.", f"Service Bus takes {most}.")
    if not primary_key:
        notes.finding(
            place,
            owner,
            "AuthorizationRules",
            f"{where}: its keys are not in the input. Clients need one: add it as primaryKey, or "
            "give the rule to 'busbridge serve --auth'.",
        )
