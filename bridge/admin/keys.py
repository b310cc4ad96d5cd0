"""What a client leaves out of authorization rules: new keys, and the times of their changes."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from bridge.model import entity as model

_KEY_BYTES = 32


Kept = TypeVar("Kept", bound=model.Entity)


def with_keys(entity: Kept, there: Sequence[model.AuthorizationRule], at: str) -> Kept:
    """Return an entity whose authorization rules all have two keys, and the times of their changes.

    Args:
        there: the entity's rules before the change; a key that the client leaves out is kept.
        at: the time of the change.
    """
    if isinstance(entity, model.Subscription) or not entity.authorization_rules:
        return entity
    known = {rule.name.lower(): rule for rule in there}
    rules = tuple(
        _whole(rule, known.get(rule.name.lower()), at) for rule in entity.authorization_rules
    )
    return replace(entity, authorization_rules=rules)


def _whole(
    rule: model.AuthorizationRule, before: model.AuthorizationRule | None, at: str
) -> model.AuthorizationRule:
    earlier = before or rule
    made = replace(
        rule,
        primary_key=rule.primary_key or earlier.primary_key or _new_key(),
        secondary_key=rule.secondary_key or earlier.secondary_key or _new_key(),
    )
    if before is None:
        return replace(made, created_at=at, modified_at=at)
    modified_at = before.modified_at if made == before else at  # the times are not compared
    return replace(made, created_at=before.created_at, modified_at=modified_at)


def _new_key() -> str:
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()
