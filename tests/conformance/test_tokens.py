"""Tokens of an issuer at `$cbs`, by a raw client: rights, renewal, keys, sizes, changed rules."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.access import issuer_keys
from bridge.access.access import Access
from bridge.access.fetching import FetchFailed
from bridge.access.issuer_keys import WAITING_MAX, IssuerKeys
from bridge.background.supervisor import Supervisor
from bridge.cli.main import main
from bridge.gateway.client.grants import Grants
from bridge.model.access_policy import AccessPolicy, read_policy
from bridge.model.access_rules import AccessRuleSet
from bridge.model.claims import Claims
from bridge.model.entity import AuthorizationRule, Queue, Right
from bridge.model.errors import ServerBusy, Unauthorized
from bridge.model.issuers.issuer import Issuer
from bridge.model.issuers.renewal import KEPT_S
from bridge.model.issuers.web_keys import KeySet, read_keys
from bridge.model.issuers.web_token import LEEWAY_S, KeyAwaited, WebToken
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.performatives import Attach, Detach
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.client import Client, sas
from tests.conformance.door import ROOT_RULE
from tests.conformance.served import client, gateway
from tests.conformance.web import web_client
from tests.fixtures.issuing import Provider, Signer, entry, jwks, provider, signer
from tests.fixtures.waiting import until

ONE = signer("one")
MINE = {"claim": "sub", "value": "an-application"}
ALL = {**MINE, "role": "Azure Service Bus Data Owner"}
SENDER = {**MINE, "role": "Azure Service Bus Data Sender", "scope": "q"}
RECEIVER = {**MINE, "role": "Azure Service Bus Data Receiver", "scope": "q"}


def policy(
    *grants: dict[str, Any], rules: AccessRuleSet | None = None, **fields: Any
) -> AccessPolicy:
    """Return a policy with one issuer."""
    document = {"issuers": [entry(*(grants or (ALL,)), **fields)]}
    found = read_policy(json.dumps(document))
    return AccessPolicy(rules or AccessRuleSet(), found.issuers)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The JWKS file of the issuer."""
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(ONE.jwk()))
    return path


@asynccontextmanager
async def guarded(
    keys: Path, *grants: dict[str, Any], now_s: Any = time.time, **options: Any
) -> AsyncIterator[tuple[Access, int]]:
    """Run a gateway that takes tokens of the issuer; yields its access object and port."""
    rules = AccessRuleSet(namespace=(ROOT_RULE,))
    access = Access(policy(*grants, rules=rules, keys={"file": str(keys)}), now_s=now_s)
    space = MemoryNamespace(Queue(name="q"), Queue(name="other"), Queue(name="a.b"))
    async with gateway(namespace=space, access=access, **options) as (_, port):
        supervisor = Supervisor()
        access.start(supervisor)
        await until(lambda: access.issuer_keys[0].current is not None)
        try:
            yield access, port
        finally:
            await access.stop()


@asynccontextmanager
async def stranger(port: int) -> AsyncIterator[Client]:
    """Connect, and put no token."""
    async with client(port, authorised=False) as connected:
        yield connected


async def put(peer: Client, token: str, path: str = "q") -> int:
    """Put a token of the issuer, as SDKs do; return the status."""
    return await peer.put_token(token, f"sb://localhost/{path}", "jwt")


async def attached(peer: Client, handle: int, address: str, *, role: bool) -> Any:
    """Ask for a link; return what it is refused with, or `None`."""
    peer.attach(handle, address, role=role)
    await peer.next(Attach, handle=handle)
    told = [each for each, _ in peer.frames if isinstance(each, Detach) and each.handle == handle]
    if not told:
        # an answer to a later request: the refusal would have come before it
        await peer.put_token("x", "sb://localhost/")
        told = [each for each, _ in peer.frames if isinstance(each, Detach)]
        told = [each for each in told if each.handle == handle]
    return told[0].error if told else None


async def test_a_token_gives_its_rights_where_it_is_put_and_below(keys: Path) -> None:
    """Not at another entity, though it would be granted there if it were put there."""
    async with guarded(keys) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token()) == 202
        assert await attached(peer, 10, "q", role=False) is None
        assert await attached(peer, 11, "q/$DeadLetterQueue", role=True) is None
        refused = await attached(peer, 12, "other", role=False)
        assert refused.condition == "amqp:unauthorized-access"
        assert "'Send' claim(s) are required" in refused.description
        assert await put(peer, ONE.token(), "other") == 202
        assert await attached(peer, 13, "other", role=False) is None


async def test_each_link_needs_its_own_right(keys: Path) -> None:
    """A client with the right Send may not receive."""
    async with guarded(keys, SENDER) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token()) == 202
        assert await attached(peer, 10, "q", role=False) is None
        refused = await attached(peer, 11, "q", role=True)
        assert "'Listen' claim(s) are required" in refused.description


async def test_the_form_decides_and_not_the_type(keys: Path) -> None:
    """Go and Python put a shared access signature as `jwt`; each form has any type."""
    async with guarded(keys) as (_, port), stranger(port) as peer:
        for kind in ("jwt", "servicebus.windows.net:sastoken", "anything"):
            assert await peer.put_token(sas(), "sb://localhost/q", kind) == 202
            assert await peer.put_token(ONE.token(), "sb://localhost/q", kind) == 202


async def test_no_right_at_the_name_is_told_before_that_it_is_not_there(keys: Path) -> None:
    """401 for a missing entity without a grant, 404 for one with a grant."""
    async with guarded(keys, SENDER) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token(), "missing") == 401
        assert await put(peer, ONE.token(), "other") == 401
        assert await put(peer, ONE.token(sub="somebody-else"), "q") == 401
        assert await put(peer, ONE.token(), "") == 202, "put for the namespace, good for q"
        assert await attached(peer, 10, "q", role=False) is None
        assert (await attached(peer, 11, "other", role=False)).condition
    async with guarded(keys) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token(), "missing") == 404


async def test_a_later_token_for_the_name_replaces_the_one_before(keys: Path) -> None:
    """Also by one with fewer rights."""
    more = {"claim": "roles", "value": "reader", "rights": ["Listen"], "scope": "q"}
    async with guarded(keys, SENDER, more) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token(roles=["reader"])) == 202
        assert await attached(peer, 10, "q", role=True) is None
        assert await put(peer, ONE.token()) == 202
        refused = await attached(peer, 11, "q", role=True)
        assert "'Listen' claim(s) are required" in refused.description


async def test_a_token_with_fewer_rights_ends_the_links_that_stood_on_the_one_before(
    keys: Path,
) -> None:
    """At once: nothing would end them when the replaced token expires. Others stay."""
    more = {"claim": "roles", "value": "reader", "rights": ["Listen"], "scope": "q"}
    async with guarded(keys, SENDER, more) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token(roles=["reader"])) == 202
        assert await attached(peer, 10, "q", role=False) is None
        assert await attached(peer, 11, "q", role=True) is None
        assert await put(peer, ONE.token()) == 202
        detach = await peer.next(Detach)
        assert detach.handle == 11
        assert "'Listen' claim(s) are required" in detach.error.description
        assert await attached(peer, 12, "q", role=False) is None
        assert not any(isinstance(each, Detach) for each, _ in peer.frames)


@pytest.mark.parametrize(
    ("name", "entity"), [("a.b", "a.b"), ("sb://localhost/q?x=1", "q"), ("sb:///q/", "q")]
)
async def test_rights_are_of_the_name_that_a_token_is_put_for_before_and_after_a_change(
    keys: Path, name: str, entity: str
) -> None:
    """A name with a dot is no host, and what stands behind `?` is no part of a name."""
    async with guarded(keys) as (access, port), stranger(port) as peer:
        assert await peer.put_token(ONE.token(), name) == 202
        for handle in (10, 20):
            assert await attached(peer, handle, entity, role=False) is None
            assert (await attached(peer, handle + 1, "other", role=False)).condition
            access.replace(policy(keys={"file": str(keys)}))


async def test_links_end_with_the_token_and_its_leeway(keys: Path) -> None:
    """With Azure's error; a renewed token keeps them."""
    ahead_s = [0.0]

    def now_s() -> float:
        return time.time() + ahead_s[0]

    async with guarded(keys, now_s=now_s) as (_, port), stranger(port) as peer:
        ends_s = int(time.time()) - LEEWAY_S + 3
        assert await put(peer, ONE.token(exp=ends_s, nbf=None, iat=None)) == 202
        assert await put(peer, ONE.token(exp=ends_s, nbf=None, iat=None), "other") == 202
        for handle, name in ((10, "q"), (11, "other")):
            assert await attached(peer, handle, name, role=False) is None
        assert await put(peer, ONE.token(), "other") == 202
        detach = await peer.next(Detach)
        assert detach.handle == 10
        assert detach.error.condition == "amqp:unauthorized-access"
        assert detach.error.description.startswith("ExpiredToken: ")
        assert time.time() >= ends_s + LEEWAY_S
        ahead_s[0] = 3_600 + LEEWAY_S
        assert await put(peer, ONE.token()) == 401


async def test_links_end_when_their_right_is_taken_away(keys: Path) -> None:
    """Senders' too, those of keys as those of tokens; others stay, and nobody connects again."""
    async with (
        guarded(keys, ALL) as (access, port),
        stranger(port) as peer,
        client(port) as by_key,
    ):
        assert await put(peer, ONE.token()) == 202
        for handle, role in ((10, False), (11, True)):
            assert await attached(peer, handle, "q", role=role) is None
        by_key.attach(10, "q", role=False)
        await by_key.next(Attach, handle=10)

        access.replace(
            policy(RECEIVER, rules=AccessRuleSet(namespace=(ROOT_RULE,)), keys={"file": str(keys)})
        )
        detach = await peer.next(Detach)
        assert detach.handle == 10
        assert "'Send' claim(s) are required" in detach.error.description

        access.replace(policy(RECEIVER, keys={"file": str(keys)}))
        detach = await by_key.next(Detach)
        assert detach.error.condition == "amqp:unauthorized-access"
        assert await by_key.put_token(sas()) == 401
        assert not any(isinstance(each, Detach) for each, _ in peer.frames)


async def test_a_grant_that_comes_is_good_for_a_token_that_was_put_before(keys: Path) -> None:
    """Verified claims are kept, and their rights reckoned anew."""
    async with guarded(keys, SENDER) as (access, port), stranger(port) as peer:
        assert await put(peer, ONE.token()) == 202
        assert (await attached(peer, 10, "q", role=True)).condition
        access.replace(policy(ALL, keys={"file": str(keys)}))
        assert await attached(peer, 11, "q", role=True) is None


@pytest.mark.parametrize("size", [1_000, 20_000, 32_700])
async def test_large_tokens_pass(keys: Path, size: int) -> None:
    """Up to 32 KB, in one frame, from a client that has shown nothing yet."""
    async with guarded(keys) as (_, port), stranger(port) as peer:
        short = len(ONE.token(x=""))
        text = ONE.token(x="x" * ((size - short) * 3 // 4 - 4))
        assert size - 20 < len(text) <= size
        assert await put(peer, text) == 202


async def test_a_large_token_passes_over_a_websocket(keys: Path) -> None:
    """In frames of a WebSocket of any size."""
    async with guarded(keys) as (_, port):
        peer = await web_client(port, piece=1_000)
        assert await put(peer, ONE.token(x="x" * 23_000)) == 202
        assert await attached(peer, 10, "q", role=False) is None
        await peer.close()


async def test_tokens_above_the_limit_are_told_so_and_huge_ones_end_the_connection(
    keys: Path,
) -> None:
    """Above 32 KB Azure's text, above 64 KB the end."""
    async with guarded(keys) as (_, port), stranger(port) as peer:
        assert await put(peer, ONE.token(x="x" * 40_000)) == 401
        assert await put(peer, ONE.token()) == 202
    async with guarded(keys) as (_, port):
        peer = await (await Client.connect(port)).open()
        await peer._attach_node("$cbs", 0, 1)
        fields = {"operation": "put-token", "type": "jwt", "name": "sb://localhost/q"}
        message = AmqpMessage(application_properties=fields, value="x" * 70_000)
        peer.transfer(0, encode_message(message))
        await peer.closed()
        await peer.close()


async def test_only_a_verified_token_has_its_subject_in_the_log(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing else of any token."""
    forged = Signer("one").token(sub="forged-subject", secret="private-claim")
    with caplog.at_level(logging.INFO):
        async with guarded(keys, SENDER) as (_, port), stranger(port) as peer:
            assert await put(peer, forged) == 401
            assert await put(peer, ONE.token(sub="known-subject", secret="private-claim")) == 401
    assert "InvalidSignature" in caplog.text
    assert "known-subject" in caplog.text
    for text in ("forged-subject", "private-claim", *forged.split(".")):
        assert text not in caplog.text


async def test_links_of_a_rule_in_a_definition_end_with_the_rule(keys: Path) -> None:
    """A key that a definition has no more is worth nothing, on open links neither."""
    async with guarded(keys) as (access, port), stranger(port) as peer:
        rule = AuthorizationRule(name="of-q", primary_key="k", rights=frozenset({Right.SEND}))
        access.take_definitions(AccessRuleSet(entities={"q": (rule,)}))
        assert await peer.put_token(sas("q", rule="of-q", key="k"), "sb://localhost/q") == 202
        peer.attach(10, "q", role=False)
        await peer.next(Attach, handle=10)
        other = AuthorizationRule(name="of-q", primary_key="new", rights=frozenset({Right.SEND}))
        access.take_definitions(AccessRuleSet(entities={"q": (other,)}))
        detach = await peer.next(Detach)
        assert detach.error.condition == "amqp:unauthorized-access"


async def test_the_log_says_once_that_groups_were_left_out(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Entra leaves them out when there are too many; other grants hold."""
    by_group = {"claim": "groups", "value": "g", "rights": ["Listen"]}
    token = ONE.token(_claim_names={"groups": "src1"}, _claim_sources={"src1": {"endpoint": "x"}})
    async with guarded(keys, SENDER, by_group) as (_, port), stranger(port) as peer:
        assert await put(peer, token) == 202
        assert await put(peer, token) == 202
    told = [each for each in caplog.messages if each.startswith("token.groups_left_out")]
    assert len(told) == 1
    assert "an-application" in told[0]


# -- keys over TLS


@asynccontextmanager
async def fetching(folder: Path, **keys: Any) -> AsyncIterator[tuple[Provider, IssuerKeys]]:
    """Serve an issuer's documents; yields them with the keys that are fetched from there."""
    async with provider(folder, jwks(ONE.jwk())) as found:
        said = {"discovery": f"{found.address}/discovery", "ca": str(found.ca), **keys}
        said = {name: value for name, value in said.items() if value is not None}
        (issuer,) = policy(keys=said).issuers
        yield found, IssuerKeys(issuer)


async def test_keys_come_by_discovery_and_by_url(tmp_path: Path) -> None:
    """By an authority of one's own, with a token to ask with."""
    bearer = tmp_path / "bearer"
    bearer.write_text("token-to-ask-with\n")
    async with fetching(tmp_path / "tls", bearer=str(bearer)) as (found, keys):
        await keys.fetch_now()
        assert keys.renewal.error == ""
        assert [key.kid for key in keys.current.keys] == ["one"]
        asked = "Bearer token-to-ask-with"
        assert found.requests == [("/discovery", asked), ("/keys", asked)]
    async with provider(tmp_path / "tls", jwks(ONE.jwk())) as found:
        source = {"url": f"{found.address}/keys", "ca": str(found.ca)}
        (issuer,) = policy(keys=source).issuers
        keys = IssuerKeys(issuer)
        await keys.fetch_now()
        assert keys.current is not None
        assert found.requests == [("/keys", "")]


async def test_auth_check_fetches_the_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says when they cannot be had."""
    async with provider(tmp_path / "tls", jwks(ONE.jwk())) as found:
        source = {"discovery": f"{found.address}/discovery", "ca": "tls/ca.pem"}
        rules, token = tmp_path / "rules.json", tmp_path / "token"
        rewrite(rules, json.dumps({"issuers": [entry(SENDER, keys=source)]}).encode())
        rewrite(token, ONE.token().encode())
        arguments = ["auth", "check", str(rules), "--token-file", str(token)]
        assert await asyncio.to_thread(main, arguments) == 0
        assert "q: Send\n" in capsys.readouterr().out
        rewrite(token, ONE.token(exp=1e308).encode())
        assert await asyncio.to_thread(main, arguments) == 0
        assert "taken until 1e+308 s" in capsys.readouterr().out
        found.status = 500
        assert await asyncio.to_thread(main, arguments) == 1
        assert "/discovery answers with 500): there are none." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"status": 302}, "answers with 302"),
        (
            {
                "discovery": {
                    "issuer": "https://login.example.com/",
                    "jwks_uri": f"https://{'a' * 64}.example.com/keys",
                }
            },
            "label empty or too long",
        ),
        ({"status": 500}, "answers with 500"),
        ({"keys": b"{}"}, "no list 'keys'"),
        ({"keys": b" " * 1_048_577}, "/keys has more than 1048576 bytes"),
        ({"keys": jwks(*[{}] * 101)}, "101 keys"),
        ({"discovery": {"issuer": "https://evil.example.com"}}, "of another issuer"),
        ({"discovery": {"issuer": "https://login.example.com/"}}, "names no jwks_uri"),
        (
            {"discovery": {"issuer": "https://login.example.com/", "jwks_uri": "http://x/keys"}},
            "begins with https://",
        ),
    ],
)
async def test_a_faulty_answer_leaves_the_keys(
    tmp_path: Path, fault: dict[str, Any], why: str
) -> None:
    """Redirects are not followed, sizes are limited, the document is the issuer's own."""
    async with fetching(tmp_path) as (found, keys):
        await keys.fetch_now()
        before = keys.current
        for name, value in fault.items():
            setattr(found, name, value)
        await keys.fetch_now()
        assert why in keys.renewal.error
        assert keys.current is before
        assert why in keys.sentence
        assert keys.renewal.failures == 1


async def test_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    """The system's authorities did not sign the issuer's certificate."""
    async with fetching(tmp_path, ca=None) as (_, keys):
        await keys.fetch_now()
        assert "CERTIFICATE_VERIFY_FAILED" in keys.renewal.error
        assert keys.current is None


async def test_a_key_that_has_changed_is_fetched_for_the_first_token_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token waits, and attaches that came meanwhile find it; a kid of nobody is refused."""
    monkeypatch.setattr("bridge.model.issuers.renewal.APART_S", 0.2)
    two = signer("two")
    async with provider(tmp_path, jwks(ONE.jwk())) as found:
        source = {"url": f"{found.address}/keys", "ca": str(found.ca)}
        access = Access(policy(keys=source))
        async with gateway(access=access) as (_, port), stranger(port) as peer:
            access.start(Supervisor())
            await until(lambda: access.issuer_keys[0].current is not None)
            found.keys = jwks(two.jwk())
            assert await put(peer, two.token()) == 202
            assert await attached(peer, 10, "q", role=False) is None
            count = len(found.requests)
            assert await put(peer, Signer("../../three").token()) == 401
            assert {path for path, _ in found.requests} == {"/keys"}
            assert len(found.requests) == count + 1
            assert await put(peer, ONE.token()) == 401, "its key is gone"
        await access.stop()


async def test_an_issuer_without_keys_is_503(tmp_path: Path) -> None:
    """Clients try again; shared access keys are not concerned."""
    async with provider(tmp_path, jwks(ONE.jwk())) as found:
        found.status = 500
        source = {"url": f"{found.address}/keys", "ca": str(found.ca)}
        access = Access(policy(rules=AccessRuleSet(namespace=(ROOT_RULE,)), keys=source))
        async with gateway(access=access) as (_, port), stranger(port) as peer:
            access.start(Supervisor())
            assert await put(peer, ONE.token()) == 503
            assert await peer.put_token(sas()) == 202
            assert "answers with 500" in access.warnings[0]
            assert access.reasons == []
        await access.stop()


def issuer_of(kid: str = "one") -> Issuer:
    """Return an issuer."""
    (issuer,) = policy().issuers
    return issuer


async def test_a_hundred_tokens_wait_and_no_more() -> None:
    """For one fetch, which answers them all."""
    may_end = asyncio.Event()

    async def fetch(issuer: Issuer) -> KeySet:
        await may_end.wait()
        return read_keys(jwks(ONE.jwk()))

    keys = IssuerKeys(issuer_of(), fetch=fetch)
    awaited = KeyAwaited(keys.issuer, is_empty=True)
    standing = Supervisor().keep("keys", keys.run)
    waiting = [asyncio.create_task(keys.fetched(awaited)) for _ in range(WAITING_MAX)]
    await until(lambda: keys.waiting == WAITING_MAX)
    with pytest.raises(ServerBusy, match="100 tokens wait"):
        await keys.fetched(awaited)
    may_end.set()
    await asyncio.gather(*waiting)
    assert keys.waiting == 0
    standing.task.cancel()
    await asyncio.gather(standing.task, return_exceptions=True)


async def test_keys_are_kept_for_a_day_while_the_issuer_is_away() -> None:
    """By the clock; then its tokens have no keys."""
    now_s = [0.0]
    answers: list[KeySet | None] = [read_keys(jwks(ONE.jwk()))]

    async def fetch(issuer: Issuer) -> KeySet:
        found = answers[-1]
        if found is None:
            raise FetchFailed("away")
        return found

    keys = IssuerKeys(issuer_of(), fetch=fetch, clock=lambda: now_s[0])
    await keys.fetch_now()
    answers.append(None)
    for now_s[0] in (600.0, KEPT_S):
        await keys.fetch_now()
        assert keys.current is not None
        assert "are kept" in keys.sentence
    now_s[0] = KEPT_S + 1
    assert keys.current is None
    assert "are too old" in keys.sentence
    with pytest.raises(ServerBusy):
        await keys.fetched(KeyAwaited(keys.issuer, is_empty=True))


async def test_a_token_that_waits_longer_than_ten_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The issuer does not answer."""
    monkeypatch.setattr(issuer_keys, "WAIT_S", 0.05)
    keys = IssuerKeys(issuer_of())
    await keys.fetched(KeyAwaited(keys.issuer, is_empty=False))
    access = Access(policy())
    with pytest.raises(ServerBusy):
        await access.verified(ONE.token())


# -- files


def rewrite(path: Path, content: bytes) -> None:
    """Change a file."""
    path.write_bytes(content)


async def test_a_file_of_keys_is_read_again(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty one leaves the keys, and health red."""
    monkeypatch.setattr("bridge.model.issuers.renewal.RENEW_FILE_S", 0.05)
    two = signer("two")
    async with guarded(keys) as (access, port), stranger(port) as peer:
        assert access.reasons == []
        rewrite(keys, b"{")
        await until(lambda: access.reasons)
        assert "not JSON" in access.reasons[0]
        assert access.warnings == []
        assert await put(peer, ONE.token()) == 202
        rewrite(keys, jwks(two.jwk()))
        await until(lambda: not access.reasons)
        assert await put(peer, two.token()) == 202


# -- order


PUTS = st.lists(
    st.tuples(st.sampled_from(["q", "other"]), st.integers(0, 3), st.integers(0, 5)), max_size=12
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(puts=PUTS)
def test_of_several_tokens_for_a_name_the_one_that_came_last_stays(
    puts: list[tuple[str, int, int]],
) -> None:
    """In whatever order the waits for their keys end."""
    access = Access(policy())
    grants = Grants(access, str)
    made = []
    for turn, (name, right, delay) in enumerate(puts):
        token = WebToken(issuer="i", claims={"turn": turn, "r": right}, expires_s=2e9)
        made.append((delay, turn, name, Claims(grants=(), expires_s=2e9, proof=token)))
    for _, turn, name, claims in sorted(made, key=lambda each: each[:2]):
        assert grants.put(name, claims, turn)
    for name in ("q", "other"):
        turns = [turn for turn, (asked, _, _) in enumerate(puts) if asked == name]
        kept: Any = grants._claims.get((name,))
        assert (kept.proof.claims["turn"] if kept else None) == (max(turns) if turns else None)


async def test_without_issuers_a_token_is_told_so() -> None:
    """The error tells an operator who has no rules file where to look."""
    access = Access(AccessRuleSet(namespace=(ROOT_RULE,)))
    with pytest.raises(Unauthorized, match=r"the rules file \(--auth\) has no issuers"):
        await access.verified(ONE.token())
    assert access.verify(sas()).allows(Right.SEND, "q")
