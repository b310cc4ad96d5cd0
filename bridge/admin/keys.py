"""New keys for authorization rules whose keys the client has left out."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from bridge.model import entity as model

_KEY_BYTES = 32


Kept = TypeVar("Kept", bound=model.Entity)


def with_keys(entity: Kept, there: Sequence[model.AuthorizationRule]) -> Kept:
    """Return an entity whose authorization rules all have two keys.

    Args:
        there: the entity's rules before the change; a key that the client leaves out is kept.
    """
    if isinstance(entity, model.Subscription) or not entity.authorization_rules:
        return entity
    known = {rule.name.lower(): rule for rule in there}
    rules = tuple(
        _with_keys(rule, known.get(rule.name.lower(), rule)) for rule in entity.authorization_rules
    )
    return replace(entity, authorization_rules=rules)


def _with_keys(
    rule: model.AuthorizationRule, before: model.AuthorizationRule
) -> model.AuthorizationRule:
    return replace(
        rule,
        primary_key=rule.primary_key or before.primary_key or _new_key(),
        secondary_key=rule.secondary_key or before.secondary_key or _new_key(),
    )


def _new_key() -> str:
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()
