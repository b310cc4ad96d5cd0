"""The rights of HTTP requests, when the rules change while a request is under way."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from aiohttp.test_utils import make_mocked_request

from bridge.access.access import Access
from bridge.admin.request_rights import RequestRights, rights_of
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import AccessRuleSet, Segments
from bridge.model.claims import Claims
from bridge.model.entity import AuthorizationRule, Right
from bridge.model.errors import Unauthorized
from tests.conformance.client import sas

SUPPLEMENTARY = "ServiceBusSupplementaryAuthorization"
KEY = "a-key-of-this-test"
OWNER = AuthorizationRule(name="owner", primary_key=KEY, rights=frozenset(Right))
OF_Q = AuthorizationRule(name="of-q", primary_key=KEY, rights=frozenset({Right.LISTEN}))
OF_TARGET = AuthorizationRule(name="of-target", primary_key=KEY, rights=frozenset({Right.SEND}))
NOBODY = AccessPolicy()


def token(rule: AuthorizationRule, path: str = "") -> str:
    """Return a token that is signed by a rule."""
    return sas(path, rule=rule.name, key=KEY, expires_s=time.time() + 3_600)


async def rights(access: Access, authorization: str, target: str = "") -> RequestRights:
    """Return the rights of a request."""
    headers = {"Authorization": authorization}
    if target:
        headers[SUPPLEMENTARY] = target
    request = make_mocked_request("PUT", "/q", headers=headers)
    return await rights_of(access, request, logging.getLogger("test"))


def refused(found: RequestRights) -> None:
    """Check that a request has no right to anything."""
    with pytest.raises(Unauthorized):
        found.check("PUT", "q", "", Right.MANAGE)
    with pytest.raises(Unauthorized):
        found.check_target("ForwardTo", "target")
    assert not found.covers("q")


async def test_a_right_that_is_taken_away_under_way_is_gone_for_administration_too() -> None:
    """The token's rights, and those at the target of forwarding, follow the rules at once."""
    access = Access(AccessRuleSet(namespace=(OWNER,)))
    found = await rights(access, token(OWNER))
    found.check("PUT", "q", "", Right.MANAGE)
    found.check_target("ForwardTo", "target")
    access.replace(NOBODY)
    refused(found)


async def test_the_right_to_forward_is_of_the_rules_as_they_are_now() -> None:
    """A supplementary token does not keep what its rule has lost."""
    of_q = {"q": (OF_Q,)}
    access = Access(AccessRuleSet(entities={**of_q, "target": (OF_TARGET,)}))
    found = await rights(access, token(OF_Q, "q"), token(OF_TARGET, "target"))
    found.check_target("ForwardTo", "target")
    access.replace(AccessPolicy(AccessRuleSet(entities=of_q)))
    with pytest.raises(Unauthorized):
        found.check_target("ForwardTo", "target")


class _Waiting(Access):
    """Waits in the verification of supplementary tokens, as for the key of an issuer."""

    def __init__(self, rules: AccessRuleSet) -> None:
        super().__init__(rules)
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def verified(self, text: str, scope: Segments = (), *, grace_s: float = 0.0) -> Claims:
        found = await super().verified(text, scope, grace_s=grace_s)
        if "of-target" in text:
            self.begun.set()
            await self.may_go_on.wait()
        return found


async def test_a_right_is_gone_that_is_taken_away_while_another_token_waits() -> None:
    """The request's own token was verified before the change."""
    access = _Waiting(AccessRuleSet(namespace=(OWNER, OF_TARGET)))
    waiting = asyncio.create_task(rights(access, token(OWNER), token(OF_TARGET)))
    await access.begun.wait()
    access.replace(NOBODY)
    access.may_go_on.set()
    refused(await waiting)
