"""The rules file with issuers: what it says, and that each mistake in it is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.model.access_policy import AccessPolicy, read_policy
from bridge.model.entity import Right
from bridge.model.errors import ArgumentError
from bridge.model.issuers.issuer import ALGORITHMS, ENTRA_AUDIENCES
from tests.fixtures.issuing import AUDIENCE, ISSUER, entry

TENANT = "0f9b2c11-4d5e-4f60-8a7b-9c0d1e2f3a4b"
GRANT = {"claim": "oid", "value": "x", "role": "Azure Service Bus Data Sender"}
RULE = {"name": "r", "primaryKey": "secret-key", "rights": ["Send"]}


def read(*issuers: Any, **parts: Any) -> AccessPolicy:
    """Return what a rules file with these issuers says."""
    return read_policy(json.dumps({"issuers": list(issuers), **parts}))


def test_entra_is_both_of_its_issuers_and_all_of_its_audiences() -> None:
    """A tenant's id is enough: keys come from Entra's own discovery."""
    (issuer,) = read({"entra": TENANT.upper(), "grants": [GRANT]}).issuers
    assert issuer.names == (
        f"https://login.microsoftonline.com/{TENANT}/v2.0",
        f"https://sts.windows.net/{TENANT}/",
    )
    assert issuer.audiences == ENTRA_AUDIENCES
    assert issuer.algorithms == ALGORITHMS
    assert issuer.keys.discovery == f"{issuer.names[0]}/.well-known/openid-configuration"


def test_an_issuer_of_ones_own() -> None:
    """Each field, and what holds without it."""
    (plain,) = read(entry(GRANT)).issuers
    assert plain.names == (ISSUER,)
    assert plain.keys.discovery == f"{ISSUER}.well-known/openid-configuration"
    (issuer,) = read(
        entry(
            GRANT,
            {
                "claim": ["realm_access", "roles"],
                "value": ["a", "b"],
                "rights": ["Listen"],
                "scope": "/Events/Subscriptions/Audit",
            },
            audience=["one", "two"],
            algorithms=["ES256", "RS256"],
            keys={"url": "https://keys.example.com/", "ca": "ca.pem", "bearer": "token"},
        )
    ).issuers
    assert issuer.audiences == ("one", "two")
    assert issuer.algorithms == ("RS256", "ES256")
    assert (issuer.keys.url, issuer.keys.ca, issuer.keys.bearer) == (
        *("https://keys.example.com/", "ca.pem"),
        "token",
    )
    sender, reader = issuer.grants
    assert (sender.claim, sender.scope) == (("oid",), ())
    assert sender.rights == {Right.SEND}
    assert reader.claim == ("realm_access", "roles")
    assert reader.values == {"a", "b"}
    assert reader.scope == ("events", "subscriptions", "audit")


def test_rules_and_issuers_stand_side_by_side() -> None:
    """Either may be absent."""
    both = read(entry(GRANT), rules=[RULE])
    assert (both.rules.count, len(both.issuers)) == (1, 1)
    assert read_policy(json.dumps({"rules": [RULE]})).issuers == ()
    assert read(entry(GRANT)).rules.count == 0


def test_keys_of_a_file_need_no_https() -> None:
    """The issuer's name is then a name alone."""
    (issuer,) = read(entry(GRANT, issuer="kubernetes", keys={"file": "keys.json"})).issuers
    assert issuer.keys.file == "keys.json"


GRANTS = "grant 1: "


@pytest.mark.parametrize(
    ("issuer", "why"),
    [
        (5, "issuer 1: it is not an object"),
        ({**entry(GRANT), "more": 1}, "the field 'more' is not known"),
        (entry(GRANT, issuer=None), "'issuer' or 'entra' must be given"),
        (entry(GRANT, issuer=""), "'issuer' must be a text that is not empty"),
        (entry(GRANT, audience=None), "'audience' must be a text"),
        (entry(GRANT, audience=[]), "'audience' must be a text, or a list"),
        (entry(GRANT, audience=[5]), "'audience' must be a text"),
        (entry(GRANT, algorithms=["HS256"]), "'algorithms' must be some of RS256, PS256, ES256"),
        (entry(GRANT, algorithms=["none"]), "'algorithms' must be some of"),
        (entry(GRANT, issuer="http://login.example.com"), "fetched by https alone"),
        (entry(GRANT, issuer="kubernetes"), "fetched by https alone"),
        (entry(GRANT, keys={"url": "http://k.example.com"}), "fetched by https alone"),
        (entry(GRANT, keys={"url": "https://a:b@k.example.com"}), "fetched by https alone"),
        (entry(GRANT, keys={"url": "https://k", "file": "f"}), "one of 'file', 'url'"),
        (entry(GRANT, keys={"file": "f", "ca": "c"}), "has nothing beside it"),
        (entry(GRANT, keys={"bearer": "b"}), "'bearer' in 'keys' needs 'ca'"),
        (entry(GRANT, keys="https://k"), "'keys' is not an object"),
        ({"entra": "contoso.com", "grants": [GRANT]}, "must be the tenant's id, a GUID"),
        ({"entra": TENANT, "audience": "x", "grants": [GRANT]}, "'entra' has its own audience"),
        (entry(), "'grants' must be a list that is not empty"),
        (entry(5), f"{GRANTS}it is not an object"),
        (entry({**GRANT, "x": 1}), f"{GRANTS}the field 'x' is not known"),
        (entry({**GRANT, "claim": []}), f"{GRANTS}'claim' must be a text"),
        (entry({**GRANT, "value": None}), f"{GRANTS}'value' must be a text"),
        (entry({**GRANT, "role": "Owner"}), f"{GRANTS}'role' must be one of 'Azure Service Bus"),
        (entry({**GRANT, "rights": ["Send"]}), f"{GRANTS}it must have one of 'role' and 'rights'"),
        (entry({"claim": "a", "value": "b"}), f"{GRANTS}it must have one of 'role' and 'rights'"),
        (entry({"claim": "a", "value": "b", "rights": ["Read"]}), "'rights' must be a list of"),
        (entry({"claim": "a", "value": "b", "rights": ["Manage"]}), "Manage needs Send and Listen"),
        (entry({**GRANT, "scope": 5}), f"{GRANTS}'scope' must be a text"),
        (entry({**GRANT, "scope": "a b"}), f"{GRANTS}The entity name 'a b' is not valid"),
        (entry({**GRANT, "scope": "t/subscriptions/" + "s" * 51}), "is not valid"),
    ],
)
def test_bad_issuers(issuer: Any, why: str) -> None:
    """A mistake is named with its place in the file."""
    with pytest.raises(ArgumentError, match=why) as caught:
        read(issuer)
    assert str(caught.value).startswith("The rules file, issuer 1: ")


def test_one_issuer_stands_once() -> None:
    """A token's `iss` leads to one entry, Entra's two names to the same."""
    other = entry(GRANT, issuer=f"https://sts.windows.net/{TENANT}/", audience=AUDIENCE)
    with pytest.raises(ArgumentError, match=r"issuer 2: the issuer 'https://sts.* is there twice"):
        read({"entra": TENANT, "grants": [GRANT]}, other)


@pytest.mark.parametrize("parts", [{"rules": 5}, {"rules": [], "x": []}, {"issuers": {}}])
def test_other_documents(parts: Any) -> None:
    """Both parts are lists, and there is no third."""
    with pytest.raises(ArgumentError, match=r'must be \{"rules"'):
        read(**parts)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"issuers": [], "rules": [], "rules": []}', "rules"),
        ('{"rules": [{"name": "a", "rights": ["Send"], "rights": ["Listen"]}]}', "rights"),
        ('{"issuers": [{"keys": {"ca": "a", "ca": "b"}}]}', "ca"),
    ],
)
def test_a_field_that_is_there_twice_is_refused_by_name(text: str, name: str) -> None:
    """Of two lists of rules the first would be gone without a word."""
    with pytest.raises(ArgumentError, match=f"the field '{name}' is there twice"):
        read_policy(text)
