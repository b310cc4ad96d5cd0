"""The rules file (`--auth`): shared access rules, and issuers of tokens with what these grant.

    {"rules": [...],
     "issuers": [
       {"entra": "<tenant id>",
        "grants": [{"claim": "oid", "value": "<object id>",
                    "role": "Azure Service Bus Data Sender", "scope": "orders"}]},
       {"issuer": "https://login.example.com/realms/shop", "audience": "busbridge",
        "keys": {"url": "https://...", "ca": "ca.pem"},
        "grants": [{"claim": ["realm_access", "roles"], "value": ["reader", "auditor"],
                    "rights": ["Listen"], "scope": "events/subscriptions/audit"}]}]}

One of both lists may be absent. docs/tokens.md explains every field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from bridge.model.access_rules import AccessRuleSet, rules_of
from bridge.model.errors import ArgumentError
from bridge.model.issuers.issuer import Issuer
from bridge.model.issuers.reading import issuers_of

_PARTS = frozenset(("rules", "issuers"))


@dataclass(frozen=True)
class AccessPolicy:
    """Who may do what: shared access rules, and issuers."""

    rules: AccessRuleSet = field(default_factory=AccessRuleSet)
    issuers: tuple[Issuer, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Issuer]:
        """The issuers by each value of `iss` that they have."""
        return {name: issuer for issuer in self.issuers for name in issuer.names}

    def with_rules(self, more: AccessRuleSet) -> AccessPolicy:
        """Return the policy with more rules."""
        return replace(self, rules=self.rules.merged(more))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON of which no field is there twice."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ArgumentError(f"The rules file: the field {name!r} is there twice in one object.")
        found[name] = value
    return found


def read_policy(text: str) -> AccessPolicy:
    """Return the policy in the text of a rules file.

    Raises:
        ArgumentError: the text is no rules file; names the entry and the field, never a key.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"The rules file is not JSON: {error}.") from None
    if (
        not isinstance(document, dict)
        or not document
        or not set(document) <= _PARTS
        or not all(isinstance(part, list) for part in document.values())
    ):
        raise ArgumentError('The rules file must be {"rules": [...], "issuers": [...]}.')
    policy = AccessPolicy(
        rules_of(document.get("rules", [])), issuers_of(document.get("issuers", []))
    )
    if not document.get("rules") and not document.get("issuers"):
        raise ArgumentError("The rules file has no rule and no issuer: nobody could connect.")
    return policy
