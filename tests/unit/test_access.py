"""Shared access signatures: what is accepted, and that each wrong bit is refused."""

from __future__ import annotations

import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.access import (
    HTTP_GRACE_S,
    parse,
    sign,
    verify_key,
    verify_token,
)
from bridge.model.access_policy import read_policy
from bridge.model.access_rules import AccessRuleSet
from bridge.model.claims import Claims, cause_of, missing_right
from bridge.model.entity import AuthorizationRule, Namespace, Queue, Right
from bridge.model.errors import ArgumentError, Unauthorized
from bridge.model.name import parse_path

ROOT = AuthorizationRule(
    name="RootManageSharedAccessKey",
    primary_key="SAS_KEY_VALUE",
    secondary_key="the-other-key",
    rights=frozenset(Right),
)
READER = AuthorizationRule(
    name="reader", primary_key="reader-key", rights=frozenset({Right.LISTEN})
)
RULES = AccessRuleSet(namespace=(ROOT,), entities={"Orders": (READER,)})
NOW_S = 1_795_226_000

RECORDED = {
    "python azure-servicebus 7.15.0": (
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5673%2Fq"
        "&sig=3OG%2BWA0lwqHGyaz6V2K4CXtv%2FS3DoINAKzd9dA21FIs%3D"
        "&se=1795229683&skn=RootManageSharedAccessKey",
        "q",
    ),
    "python administration client": (
        "SharedAccessSignature sr=https%3A%2F%2Flocalhost%3A5301"
        "&sig=VRNeQEdyw5RBjj6ekjyV2AfSW9aQwAaBlGDTPQX1Q0Y%3D"
        "&se=1795222616&skn=RootManageSharedAccessKey",
        "anything",
    ),
    "js @azure/core-amqp 4.4.2": (
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5673%2FOrders%2F%24management"
        "&sig=fkmRogaKVJ6xplWLBxT0bXeGpisrzD4xljN9M7TNhTA%3D"
        "&se=1795229694&skn=RootManageSharedAccessKey",
        "orders/$management",
    ),
}


def token(
    uri: str,
    *,
    key: str = "SAS_KEY_VALUE",
    rule: str = "RootManageSharedAccessKey",
    expires_s: int = NOW_S + 3600,
    resource: str = "",
) -> str:
    """Return a token as a client makes it."""
    resource = resource or quote_plus(uri)
    signature = quote_plus(sign(resource, key, expires_s))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_s}&skn={rule}"


@pytest.mark.parametrize("client", RECORDED)
def test_recorded_token(client: str) -> None:
    """A token that a real SDK has made is accepted until its last second, and not after it."""
    text, path = RECORDED[client]
    expires_s = parse(text).expires_s
    claims = verify_token(text, RULES, expires_s - 1)
    assert all(claims.allows(right, path) for right in Right)
    assert claims.expires_s == expires_s
    with pytest.raises(Unauthorized, match=r"^ExpiredToken: The token is expired\."):
        verify_token(text, RULES, expires_s)


def test_token_made_by_the_installed_sdk() -> None:
    """A token that azure-servicebus makes now is accepted now."""
    from azure.servicebus._base_handler import _generate_sas_token

    made = _generate_sas_token("sb://localhost:5672/orders", ROOT.name, ROOT.secondary_key)
    claims = verify_token(made.token, RULES, time.time())
    assert claims.allows(Right.SEND, "orders")


@given(position=st.integers(min_value=0), bit=st.integers(0, 6))
def test_every_wrong_bit(position: int, bit: int) -> None:
    """A token with any bit changed is refused, or still gives no more than it gave."""
    text = token("sb://localhost/orders")
    position %= len(text)
    changed = text[:position] + chr(ord(text[position]) ^ (1 << bit)) + text[position + 1 :]
    try:
        claims = verify_token(changed, RULES, NOW_S)
    except Unauthorized:
        return
    # Percent-encoding knows two spellings of a hexadecimal digit; of the signature only.
    start, end = text.index("&sig=") + 5, text.index("&se=")
    assert start <= position < end
    assert changed.lower() == text.lower()
    assert claims == verify_token(text, RULES, NOW_S)


@given(text=st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Any text is refused with an error for the client, never with another one."""
    for candidate in (text, "SharedAccessSignature " + text):
        with pytest.raises(Unauthorized):
            verify_token(candidate, RULES, NOW_S)


@given(
    part=st.sampled_from(["sr", "sig", "se", "skn"]),
    value=st.text(st.characters(codec="ascii", exclude_characters="&"), max_size=30),
)
def test_any_field(part: str, value: str) -> None:
    """A token with one field replaced by any other value is refused."""
    good = token("sb://localhost/orders")
    fields = dict(field.split("=", 1) for field in good.partition(" ")[2].split("&"))
    if fields[part] == value:
        return
    fields[part] = value
    text = "SharedAccessSignature " + "&".join(f"{name}={fields[name]}" for name in fields)
    with pytest.raises(Unauthorized):
        verify_token(text, RULES, NOW_S)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin"),
        ("SharedAccessSignature sr=" + "a." * 5000, "longer than 8192"),
        ("Bearer abc", "does not begin"),
        ("SharedAccessSignature", "not a list"),
        ("SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x&se=1", "'skn' is missing"),
        ("SharedAccessSignature sr=sb%3A%2F%2Fh&sig=&se=1&skn=r", "'sig' is missing"),
        ("SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x&se=-1&skn=r", "'se' is not a number"),
        ("SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x&se=1e9&skn=r", "'se' is not a number"),
        ("SharedAccessSignature sr=orders&sig=x&se=1&skn=r", "'sr' is not a URI"),
        ("SharedAccessSignature sr=%ff&sig=x&se=1&skn=r", "url-encoded UTF-8"),
        ("SharedAccessSignature sr=sb%3A%2F%2Fh&sr=sb%3A%2F%2Fh&sig=x&se=1&skn=r", "different"),
    ],
)
def test_malformed(text: str, why: str) -> None:
    """A malformed token is refused with the reason."""
    with pytest.raises(Unauthorized, match=why) as caught:
        verify_token(text, RULES, NOW_S)
    assert str(caught.value).startswith("MalformedToken: ")
    assert (caught.value.condition, caught.value.status) == ("amqp:unauthorized-access", 401)


def test_signature_covers_the_text_as_received() -> None:
    """Upper-case and lower-case percent-encoding, and any order of the fields, are all accepted."""
    uri = "sb://LocalHost:5672/Orders/"
    for resource in (quote_plus(uri), quote_plus(uri).lower(), quote(uri), uri):
        text = token(uri, resource=resource)
        scheme, _, fields = text.partition(" ")
        turned = scheme + " " + "&".join(reversed(fields.split("&")))
        for candidate in (text, turned):
            assert verify_token(candidate, RULES, NOW_S).allows(Right.SEND, "oRDERS")


@pytest.mark.parametrize("scheme", ["sb://", "amqp://", "amqps://", "http://", "https://", ""])
def test_scheme_and_host(scheme: str) -> None:
    """Scheme and host of the resource mean nothing; a host without scheme is still a host."""
    claims = verify_token(token(f"{scheme}ns.servicebus.windows.net/orders"), RULES, NOW_S)
    assert claims.allows(Right.SEND, "orders")
    assert not claims.allows(Right.SEND, "ns.servicebus.windows.net")
    assert not claims.allows(Right.SEND, "other")


@pytest.mark.parametrize(
    ("uri", "path", "is_covered"),
    [
        ("sb://h", "orders", True),
        ("sb://h/", "orders/eu/$management", True),
        ("sb://h/orders", "orders", True),
        ("sb://h/orders", "ORDERS/$DeadLetterQueue", True),
        ("sb://h/orders", "orders/$management", True),
        ("sb://h/orders", "orders/eu", True),
        ("sb://h/orders", "orders2", False),
        ("sb://h/orders", "order", False),
        ("sb://h/orders/$management", "orders", False),
        ("sb://h/orders/$management", "orders/$management", True),
        ("sb://h/events/Subscriptions/a", "events/subscriptions/a", True),
        ("sb://h/events/Subscriptions/a", "events/subscriptions/b", False),
        ("sb://h/events/Subscriptions/a", "events", False),
    ],
)
def test_scope_of_the_token(uri: str, path: str, is_covered: bool) -> None:
    """A token is good for its resource and everything below it, by whole path segments."""
    claims = verify_token(token(uri), RULES, NOW_S)
    assert claims.allows(Right.LISTEN, parse_path(path)) is is_covered
    if is_covered:
        claims.check_audience(f"amqp://other-host/{path}")
    else:
        with pytest.raises(Unauthorized, match=r"^InvalidAudience: "):
            claims.check_audience(f"amqp://other-host/{path}")


def test_rule_of_an_entity() -> None:
    """An entity's rule signs for the entity and what hangs below it, and for nothing else."""
    for path in (
        "orders",
        "Orders/$DeadLetterQueue",
        "orders/$management",
        "orders/subscriptions/s",
    ):
        claims = verify_token(
            token(f"sb://h/{path}", key="reader-key", rule="reader"), RULES, NOW_S
        )
        assert claims.allows(Right.LISTEN, path)
        assert not claims.allows(Right.SEND, path)
        assert not claims.allows(Right.MANAGE, path)
    for path in ("", "orders2", "orders/eu", "other"):
        with pytest.raises(Unauthorized, match=r"^InvalidSignature: "):
            verify_token(token(f"sb://h/{path}", key="reader-key", rule="reader"), RULES, NOW_S)
    claims = verify_token(token("sb://h/orders", key="reader-key", rule="reader"), RULES, NOW_S)
    assert not claims.allows(Right.LISTEN, "orders/eu")


@pytest.mark.parametrize(
    ("key", "rule"),
    [("wrong", ROOT.name), ("SAS_KEY_VALUE", "reader"), ("", "reader"), ("", "nobody")],
)
def test_wrong_key(key: str, rule: str) -> None:
    """A signature by another key, or in another rule's name, is refused; an empty key is none."""
    with pytest.raises(Unauthorized) as caught:
        verify_token(token("sb://h/orders", key=key, rule=rule), RULES, NOW_S)
    assert str(caught.value) == "InvalidSignature: The token has an invalid signature."


def test_regenerated_key() -> None:
    """A token dies with the key that signed it; the rule's other key is not affected."""
    regenerated = AccessRuleSet(
        namespace=(
            AuthorizationRule(
                name=ROOT.name,
                primary_key="new",
                secondary_key=ROOT.secondary_key,
                rights=ROOT.rights,
            ),
        )
    )
    with pytest.raises(Unauthorized):
        verify_token(token("sb://h"), regenerated, NOW_S)
    verify_token(token("sb://h", key=ROOT.secondary_key), regenerated, NOW_S)


def test_grace() -> None:
    """Over HTTP a token serves for a minute more; elsewhere it does not."""
    text = token("sb://h", expires_s=NOW_S)
    verify_token(text, RULES, NOW_S - 0.001)
    claims = verify_token(text, RULES, NOW_S + 59, grace_s=HTTP_GRACE_S)
    assert claims.expires_s == NOW_S + 60
    with pytest.raises(Unauthorized, match="ExpiredToken"):
        verify_token(text, RULES, NOW_S + 60, grace_s=HTTP_GRACE_S)
    with pytest.raises(Unauthorized, match="ExpiredToken"):
        verify_token(text, RULES, NOW_S)


def test_name_and_key() -> None:
    """A rule's name with either of its keys gives the rule's rights over the rule's scope."""
    for key in (ROOT.primary_key, ROOT.secondary_key):
        claims = verify_key(ROOT.name, key, RULES)
        assert all(claims.allows(right, "any/path") for right in Right)
        assert claims.expires_s is None
    claims = verify_key("reader", "reader-key", RULES)
    assert claims.allows(Right.LISTEN, "orders")
    assert not claims.allows(Right.LISTEN, "other")
    assert not claims.covers("")
    for name, key in ((ROOT.name, "reader-key"), ("nobody", "SAS_KEY_VALUE"), ("reader", "")):
        with pytest.raises(Unauthorized):
            verify_key(name, key, RULES)


def test_nothing_secret_is_shown() -> None:
    """No key and no signature is in the repr of a token, claims or rules, or in an error."""
    good = token("sb://h/orders")
    signature = parse(good).signature
    shown = [repr(parse(good)), repr(RULES), repr(verify_token(good, RULES, NOW_S))]
    for bad in (token("sb://h", key="wrong"), token("sb://h", expires_s=1), good + "&sig=x"):
        with pytest.raises(Unauthorized) as caught:
            verify_token(bad, RULES, NOW_S)
        shown.append(str(caught.value))
    for secret in (ROOT.primary_key, ROOT.secondary_key, READER.primary_key, signature):
        assert not any(secret in text for text in shown)


def test_missing_right() -> None:
    """A missing right is told in Azure's words."""
    assert str(missing_right(Right.SEND, "sb://localhost/orders")) == (
        "Unauthorized access. 'Send' claim(s) are required to perform this operation. "
        "Resource: 'sb://localhost/orders'."
    )


def test_rules_of_a_namespace() -> None:
    """The rules of a namespace's definition and those of a file act together."""
    namespace = Namespace(queues=(Queue(name="orders", authorization_rules=(READER,)),))
    rules = AccessRuleSet.of(namespace).merged(
        AccessRuleSet(namespace=(ROOT,), entities={"ORDERS": (ROOT,)})
    )
    assert verify_key("reader", "reader-key", rules).allows(Right.LISTEN, "orders")
    assert verify_key(ROOT.name, ROOT.primary_key, rules).allows(Right.SEND, "new")
    assert len(rules.entities) == 1


def test_rules_file() -> None:
    """A rules file gives rules to the namespace or to an entity."""
    rules = read_policy(
        json.dumps(
            {
                "rules": [
                    {
                        "name": "all",
                        "primaryKey": "p",
                        "secondaryKey": "s",
                        "rights": ["Send", "Listen", "Manage"],
                    },
                    {"name": "in", "primaryKey": "k", "rights": ["Send"], "scope": "/orders"},
                ]
            }
        )
    ).rules
    everything: Claims = verify_key("all", "s", rules)
    assert everything.allows(Right.MANAGE, "x")
    sender = verify_key("in", "k", rules)
    assert sender.allows(Right.SEND, "Orders")
    assert not sender.allows(Right.LISTEN, "Orders")


RULE = {"name": "r", "primaryKey": "secret-key", "rights": ["Send"]}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{", "not JSON"),
        ([], r'must be \{"rules"'),
        ({"rules": {}}, r'must be \{"rules"'),
        ({"rules": [], "more": 1}, r'must be \{"rules"'),
        ({"rules": []}, "has no rule"),
        ({"rules": [RULE, 5]}, "rule 2: it is not an object"),
        ({"rules": [{**RULE, "key": ""}]}, "rule 1: the field 'key' is not known"),
        ({"rules": [{**RULE, "name": ""}]}, "'name' must be a text"),
        ({"rules": [{**RULE, "primaryKey": 5}]}, "'primaryKey' must be a text"),
        ({"rules": [{**RULE, "secondaryKey": None}]}, "'secondaryKey' must be a text"),
        ({"rules": [{**RULE, "rights": "Send"}]}, "'rights' must be a list"),
        ({"rules": [{**RULE, "rights": []}]}, "'rights' must be a list"),
        ({"rules": [{**RULE, "rights": [["Send"]]}]}, "'rights' must be a list"),
        ({"rules": [{**RULE, "rights": ["send"]}]}, "'rights' must be a list"),
        ({"rules": [{**RULE, "rights": ["Manage"]}]}, "Manage needs Send and Listen"),
        ({"rules": [{**RULE, "scope": "a b"}]}, "entity name 'a b' is not valid"),
        ({"rules": [RULE, RULE]}, "rule 2: the name 'r' is there twice"),
        ({"rules": [{**RULE, "name": f"r{i}"} for i in range(13)]}, "rule 13: a scope takes 12"),
    ],
)
def test_bad_rules_file(document: object, why: str) -> None:
    """A bad rules file is refused with the rule and the field, and without any key."""
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(ArgumentError, match=why) as caught:
        read_policy(text)
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "rule", "cause"),
    [
        ("wrong", ROOT.name, f"the key is none of the rule {ROOT.name!r}"),
        (ROOT.primary_key, "no-such-rule", "no rule has the name 'no-such-rule'"),
        ("reader-key", "reader", "the rule 'reader' is another entity's"),
    ],
)
def test_the_log_tells_a_wrong_key_from_a_wrong_name(key: str, rule: str, cause: str) -> None:
    """The client gets one answer for all of them, lest it learn the names of rules."""
    with pytest.raises(Unauthorized) as caught:
        verify_token(token("sb://h/elsewhere", key=key, rule=rule), RULES, NOW_S)
    assert str(caught.value) == "InvalidSignature: The token has an invalid signature."
    assert cause_of(caught.value) == f"{caught.value} ({cause})"
    if rule != "reader":
        with pytest.raises(Unauthorized) as caught:
            verify_key(rule, key, RULES)
        assert str(caught.value) == "InvalidSignature: The rule name or its key is not valid."
        assert cause_of(caught.value) == f"{caught.value} ({cause})"
