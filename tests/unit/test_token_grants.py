"""What the claims of a token grant, by the grants of its issuer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.access.access import Access
from bridge.gateway.client.grants import Grants
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import Segments
from bridge.model.claims import Claims, Grant
from bridge.model.entity import Right
from bridge.model.issuers.granting import grants_of, lacks_groups, values_at
from bridge.model.issuers.issuer import Issuer, KeySource, TokenGrant
from bridge.model.issuers.web_token import WebToken
from bridge.model.name import EntityPath, parse_path

NAMES = st.sampled_from(["sub", "roles", "groups", "scp", "scope", "realm_access"])
VALUES = st.sampled_from(["a", "b", "c d", "", "A"])
SCOPES = st.sampled_from([(), ("q",), ("t",), ("t", "subscriptions", "s"), ("q", "deep")])
PATHS = ["", "q", "Q/$DeadLetterQueue", "t", "t/Subscriptions/S", "t/subscriptions/other", "q/deep"]
RIGHTS = st.sampled_from(
    [frozenset({Right.SEND}), frozenset({Right.LISTEN}), frozenset(Right)],
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
CLAIMS = st.dictionaries(NAMES, VALUES | st.lists(VALUES, max_size=3) | ANYTHING, max_size=6)
GRANTS = st.builds(
    TokenGrant,
    claim=st.tuples(NAMES) | st.tuples(NAMES, NAMES),
    values=st.frozensets(VALUES, min_size=1, max_size=2),
    rights=RIGHTS,
    scope=SCOPES,
)


def issuer_of(grants: list[TokenGrant]) -> Issuer:
    """Return an issuer with these grants."""
    return Issuer(names=("i",), audiences=("a",), keys=KeySource(file="f"), grants=tuple(grants))


def given_by(grants: list[TokenGrant], claims: dict[str, Any]) -> set[tuple[Right, str]]:
    """Return all that a token may do, as pairs of right and path."""
    found = grants_of(issuer_of(grants), claims)
    token = WebToken(issuer="i", claims=claims, expires_s=0)
    rights = Claims(grants=found, proof=token)
    return {(right, path) for right in Right for path in PATHS if rights.allows(right, path)}


@given(grants=st.lists(GRANTS, max_size=4), claims=CLAIMS)
def test_rights_are_the_sum_of_the_grants_that_match(
    grants: list[TokenGrant], claims: dict[str, Any]
) -> None:
    """Each grant gives its own rights, beside the others, in any order; none takes any away."""
    expected: set[tuple[Right, str]] = set()
    for grant in grants:
        expected |= given_by([grant], claims)
    assert given_by(grants, claims) == expected == given_by(grants[::-1], claims)


@given(grant=GRANTS, claims=CLAIMS)
def test_only_texts_and_lists_of_texts_match(grant: TokenGrant, claims: dict[str, Any]) -> None:
    """A grant is for a text that is there as it is, and within its scope."""
    value: Any = claims
    for name in grant.claim:
        value = value.get(name) if isinstance(value, dict) else None
    texts: set[str] = set()
    if isinstance(value, str):
        is_split = grant.claim in {("scp",), ("scope",)}
        texts = set(value.split()) if is_split else {value}
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        texts = set(value)
    found = given_by([grant], claims)
    assert bool(found) == bool(texts & grant.values)
    assert {right for right, _ in found} <= grant.rights
    if grant.scope:
        assert all(path.lower().startswith("/".join(grant.scope)) for _, path in found)


@given(claims=CLAIMS, grants=st.lists(GRANTS, min_size=2, max_size=6))
def test_a_token_put_for_a_path_gives_nothing_beside_it(
    claims: dict[str, Any], grants: list[TokenGrant]
) -> None:
    """Put for a path, it gives what it gives for everything, at this path and below alone."""
    everything = given_by(grants, claims)
    found = grants_of(issuer_of(grants), claims, ("q",))
    token = WebToken(issuer="i", claims=claims, expires_s=0)
    rights = Claims(grants=found, proof=token)
    for right in Right:
        for path in PATHS:
            is_below = path.lower() == "q" or path.lower().startswith("q/")
            assert rights.allows(right, path) == (is_below and (right, path) in everything)


@pytest.mark.parametrize(
    ("claims", "path", "values"),
    [
        ({"scp": "Send.All Listen"}, ["scp"], {"Send.All", "Listen"}),
        ({"scope": "a  b"}, ["scope"], {"a", "b"}),
        ({"sub": "a b"}, ["sub"], {"a b"}),
        ({"x": {"scope": "a b"}}, ["x", "scope"], {"a b"}),
        ({"realm_access": {"roles": ["a", "b"]}}, ["realm_access", "roles"], {"a", "b"}),
        ({"https://x/roles": "r"}, ["https://x/roles"], {"r"}),
        ({"roles": ["a", 1]}, ["roles"], set()),
        ({"roles": {"a": "a"}}, ["roles"], set()),
        ({"roles": "a"}, ["roles", "a"], set()),
        ({"oid": 5}, ["oid"], set()),
        ({"oid": None}, ["oid"], set()),
        ({}, ["oid"], set()),
    ],
)
def test_texts_of_a_claim(claims: dict[str, Any], path: list[str], values: set[str]) -> None:
    """A claim by its name, a nested one by the names that lead to it."""
    assert values_at(claims, path) == values


def test_a_grant_of_a_subscription_reaches_its_rules() -> None:
    """And neither another subscription nor an entity whose name goes on behind a queue's."""
    grant = TokenGrant(
        claim=("sub",),
        values=frozenset({"me"}),
        rights=frozenset(Right),
        scope=("t", "subscriptions", "s"),
    )
    of_queue = replace(grant, scope=("q",))
    claims = {"sub": "me"}
    found = grants_of(issuer_of([grant, of_queue]), claims)
    rights = Claims(grants=found, proof=WebToken(issuer="i", claims=claims, expires_s=0))
    assert rights.allows(Right.MANAGE, "t/Subscriptions/s/Rules/r")
    for path in ("t", "t/Subscriptions", "t/Subscriptions/other/Rules/r", "q/rules/r"):
        assert not rights.allows(Right.MANAGE, path)


def test_a_token_whose_issuer_is_no_longer_named_gives_nothing() -> None:
    """Rights are reckoned anew from the same claims when the issuers change."""
    grant = TokenGrant(
        claim=("sub",), values=frozenset({"me"}), rights=frozenset({Right.SEND}), scope=("q",)
    )
    token = WebToken(issuer="i", claims={"sub": "me"}, expires_s=0)
    assert token.grants(AccessPolicy(issuers=(issuer_of([grant]),)), ())
    assert not token.grants(AccessPolicy(), ())


def test_groups_that_were_left_out_are_told_from_none() -> None:
    """Entra leaves `groups` out of a token when there are too many, and says where they are."""
    by_group = TokenGrant(
        claim=("groups",), values=frozenset({"g"}), rights=frozenset({Right.SEND})
    )
    issuer = issuer_of([by_group])
    assert lacks_groups(issuer, {"_claim_names": {"groups": "src1"}})
    assert lacks_groups(issuer, {"hasgroups": True})
    assert not lacks_groups(issuer, {"groups": ["x"], "_claim_names": {"groups": "src1"}})
    assert not lacks_groups(issuer, {"sub": "x"})
    assert not lacks_groups(issuer_of([]), {"_claim_names": {"groups": "src1"}})


class _Groups(list[str]):
    """A list that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return super().__iter__()


def test_a_token_of_many_groups_that_is_put_for_many_names_is_read_once_a_change() -> None:
    """4,500 groups for 1,000 names would hold up everybody for a quarter of a second."""

    def policy(*values: str) -> AccessPolicy:
        grant = TokenGrant(claim=("groups",), values=frozenset(values), rights=frozenset(Right))
        return AccessPolicy(issuers=(issuer_of([grant]),))

    groups = _Groups(f"g{number}" for number in range(100))
    token = WebToken(issuer="i", claims={"groups": groups}, expires_s=2e9)
    access = Access(policy("g1"))
    grants = Grants(access, str)
    for turn in range(50):
        found = token.grants(access.policy, (f"q{turn}",))
        grants.put(f"q{turn}", Claims(grants=found, expires_s=2e9, proof=token), turn)
    assert grants.allows(Right.SEND, EntityPath("q7"))
    groups.reads = 0
    access.replace(policy("nobody"))
    assert not grants.allows(Right.SEND, EntityPath("q7"))
    access.replace(policy("g2"))
    assert grants.allows(Right.SEND, EntityPath("q49"))
    assert groups.reads <= 4, "twice for each change"


def test_a_right_is_found_without_a_look_at_the_tokens_of_all_other_names() -> None:
    """At an expiry each link is asked for: with 1,000 of them all tokens would take a second."""
    looks = 0

    class Counted(Grant):
        def covers(self, path: Segments) -> bool:
            nonlocal looks
            looks += 1
            return super().covers(path)

    access = Access(AccessPolicy())
    grants = Grants(access, str)
    for turn in range(200):
        name = f"q{turn}"
        token = WebToken(issuer="i", claims={}, expires_s=2e9)
        given = Counted((), (name,), frozenset({Right.SEND}))
        grants.put(name, Claims(grants=(given,), expires_s=2e9, proof=token), turn)
    for path in ("q150", "Q199/$DeadLetterQueue", "q120/$management"):
        looks = 0
        assert grants.allows(Right.SEND, parse_path(path))
        assert grants.covers(parse_path(path))
        assert looks <= 6
    assert not grants.allows(Right.LISTEN, parse_path("q150"))
    assert not grants.covers(parse_path("other"))
