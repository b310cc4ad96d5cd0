"""Applications that log in by token, on the real Python SDK: every way in, and changed files."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from bridge.cli.main import main
from tests.acceptance.sdk import send, take
from tests.fixtures.issuing import Signer, entry, jwks, signer
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, object]] = {"orders": {}, "invoices": {}}

ONE = signer("one")
KEY = "key-of-all"
RULES = [{"name": "all", "primaryKey": KEY, "rights": ["Send", "Listen", "Manage"]}]
OWNER = {"claim": "sub", "value": "owner", "role": "Azure Service Bus Data Owner"}
ONLY_ORDERS = {
    "claim": "roles",
    "value": "orders",
    "rights": ["Send", "Listen"],
    "scope": "orders",
}
INVOICES = {**ONLY_ORDERS, "value": "invoices", "scope": "invoices"}

TRANSPORTS = [TransportType.Amqp, TransportType.AmqpOverWebsocket]


class Credential:
    """What applications have instead of a key: tokens of one subject, each made when asked for."""

    def __init__(self, *, for_s: int = 3_600, early_s: int = 0, **claims: Any) -> None:
        self._for_s, self._early_s, self._claims = for_s, early_s, {"sub": "owner", **claims}
        self.scopes: set[str] = set()
        self.count = 0

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token."""
        self.scopes.update(scopes)
        ends_s = int(time.time()) + self._for_s
        self.count += 1
        return AccessToken(ONE.token(exp=ends_s - self._early_s, **self._claims), ends_s)


class Files:
    """The rules file of a bridge, and the JWKS file that it names."""

    def __init__(self, folder: Path) -> None:
        self.rules, self.keys = folder / "rules.json", folder / "keys.json"
        self.keys.write_bytes(jwks(ONE.jwk()))
        self.grant(OWNER, ONLY_ORDERS)

    def grant(self, *grants: dict[str, Any]) -> None:
        """Have these grants in the rules file."""
        issuer = entry(*grants, keys={"file": "keys.json"})
        self.rules.write_text(json.dumps({"rules": RULES, "issuers": [issuer]}))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The files of the bridge."""
    return Files(tmp_path)


@pytest.fixture
def guarded(start_bridge: Any, files: Files, tmp_path: Path) -> Any:
    """A bridge with these files."""
    return start_bridge("--auth", str(files.rules), "--data-dir", str(tmp_path / "data"))


@contextmanager
def client_with(bridge: Any, credential: Any, **options: Any) -> Iterator[ServiceBusClient]:
    """A client that has a credential, over TLS."""
    with ServiceBusClient(
        "localhost",
        credential,
        custom_endpoint_address=f"sb://localhost:{bridge.port}",
        connection_verify=str(bridge.ca),
        **{"retry_total": 0, **options},
    ) as client:
        yield client


def administration(bridge: Any, credential: Any) -> ServiceBusAdministrationClient:
    """An administration client that has a credential."""
    return ServiceBusAdministrationClient(
        f"localhost:{bridge.port}", credential, connection_verify=str(bridge.ca), retry_total=0
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_application_without_a_key_sends_and_receives(
    guarded: Any, transport: TransportType
) -> None:
    """Over TLS and WebSockets; one with a key works beside it."""
    credential = Credential()
    with client_with(guarded, credential, transport_type=transport) as client:
        send(client, "orders", "by token")
        with client.get_queue_receiver("orders") as receiver:
            assert str(take(receiver)[0]) == "by token"
    assert all(scope.startswith("https://servicebus.azure.net") for scope in credential.scopes)
    text = (
        f"Endpoint=sb://localhost:{guarded.port};SharedAccessKeyName=all;SharedAccessKey={KEY};"
        "UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        send(client, "orders", "by key")


def test_a_grant_of_one_entity_opens_this_entity(guarded: Any) -> None:
    """And no other; nobody's token opens nothing."""
    with client_with(guarded, Credential(sub="app", roles=["orders"])) as client:
        send(client, "orders", "x")
        with pytest.raises(ServiceBusError, match=r"claim\(s\) are required"):
            send(client, "invoices", "x")
    with (
        client_with(guarded, Credential(sub="app")) as client,
        pytest.raises(ServiceBusError, match=r"claim\(s\) are required"),
    ):
        send(client, "orders", "x")


def test_the_well_known_key_is_off_with_a_rules_file(guarded: Any) -> None:
    """A start says so by its connection string, too."""
    assert "SharedAccessKey=KEY" in guarded.connection_string
    text = guarded.connection_string.replace("=NAME", "=RootManageSharedAccessKey")
    with (
        ServiceBusClient.from_connection_string(
            text.replace("=KEY", "=SAS_KEY_VALUE"), retry_total=0
        ) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        send(client, "orders", "x")


def test_administration_by_token(guarded: Any) -> None:
    """By Data Owner; who may send alone may not."""
    with administration(guarded, Credential()) as admin:
        admin.create_queue("made-by-token")
        assert admin.get_queue("made-by-token").name == "made-by-token"
    with (
        administration(guarded, Credential(sub="app", roles=["orders"])) as admin,
        pytest.raises(HttpResponseError, match="Manage,EntityWrite"),
    ):
        admin.create_queue("never")


DESCRIPTION = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
    "<ForwardTo>orders</ForwardTo>"
    "<ForwardDeadLetteredMessagesTo>invoices</ForwardDeadLetteredMessagesTo>"
    "</QueueDescription></content></entry>"
)


def status_of(request: urllib.request.Request) -> int:
    """Return the status of an answer."""
    try:
        with urllib.request.urlopen(request) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def made(bridge: Any, **headers: str) -> int:
    """Make a queue that forwards to two others; return the status."""
    request = urllib.request.Request(
        f"http://localhost:{bridge.port}/forwards?api-version=2021-05",
        data=DESCRIPTION.encode(),
        headers=headers,
        method="PUT",
    )
    return status_of(request)


def test_forwarding_needs_a_right_at_each_target(guarded: Any, files: Files) -> None:
    """A token in each of the supplementary headers gives it, with the word Bearer or without."""
    files.grant({**OWNER, "scope": "forwards"}, ONLY_ORDERS, INVOICES)
    own = f"Bearer {ONE.token(sub='owner')}"
    orders, invoices = (ONE.token(sub="app", roles=[each]) for each in ("orders", "invoices"))
    first = {"ServiceBusSupplementaryAuthorization": f"Bearer {orders}"}
    second = {"ServiceBusDlqSupplementaryAuthorization": invoices}
    eventually(lambda: asked(guarded, f"Bearer {invoices}", path="invoices/messages") == 201)

    assert made(guarded, Authorization=own) == 401
    assert made(guarded, Authorization=own, **first) == 401
    assert made(guarded, Authorization=own, **second) == 401
    swapped = dict(zip(first, second.values(), strict=True))
    assert made(guarded, Authorization=own, **swapped, **second) == 401
    assert made(guarded, Authorization=own, **first, **second) == 201


def asked(
    bridge: Any, token: str, *, header: str = "Authorization", path: str = "orders/messages"
) -> int:
    """Send a message over HTTP with a token in a header; return the status."""
    request = urllib.request.Request(
        f"http://localhost:{bridge.port}/{path}", data=b"x", headers={header: token}, method="POST"
    )
    return status_of(request)


def test_messages_over_http_by_token(guarded: Any) -> None:
    """With the word Bearer and without it, up to 32 KB, and on the administration's own port."""
    token = ONE.token(sub="owner")
    assert asked(guarded, f"Bearer {token}") == 201
    assert asked(guarded, token) == 201
    assert asked(guarded, f"bearer {ONE.token(sub='owner', x='x' * 23_000)}") == 201
    assert asked(guarded, f"Bearer {ONE.token(sub='owner', x='x' * 30_000)}") == 401
    assert asked(guarded, f"Bearer {ONE.token(sub='owner', x='x' * 80_000)}") == 401
    assert asked(guarded, f"Bearer {ONE.token(sub='nobody')}") == 401
    assert asked(guarded, "Bearer x") == 401
    large = ONE.token(sub="owner", x="x" * 23_000)
    for base in (guarded.admin_url, f"http://localhost:{guarded.port}"):
        request = urllib.request.Request(
            f"{base}/orders?api-version=2021-05", headers={"Authorization": f"Bearer {large}"}
        )
        with urllib.request.urlopen(request) as response:
            assert b"orders" in response.read()
        request.add_header("Authorization", f"Bearer {ONE.token(sub='owner', x='x' * 80_000)}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as answer:
            assert answer.code == 401
            assert b"MalformedToken" in answer.read()


@pytest.mark.long
def test_a_right_that_is_taken_away_in_the_file_ends_open_links(guarded: Any, files: Files) -> None:
    """Within 15 s, senders' too; a faulty file changes nothing but health."""
    with (
        client_with(guarded, Credential(sub="app", roles=["orders"])) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        files.rules.write_text("{")
        eventually(lambda: "not JSON" in health(guarded), "health names the faulty file")
        sender.send_messages(ServiceBusMessage("meanwhile"))

        files.grant(OWNER)
        eventually(lambda: "ready" in health(guarded) and "not JSON" not in health(guarded))
        eventually(lambda: is_refused(sender), "the sender's link has ended")

        files.grant(OWNER, ONLY_ORDERS)
        eventually(lambda: not is_refused(sender), "the right is back")


def is_refused(sender: Any) -> bool:
    """Whether a send is refused for want of a right."""
    try:
        sender.send_messages(ServiceBusMessage("x"))
    except ServiceBusError as error:
        return "claim(s) are required" in str(error)
    return False


def health(bridge: Any) -> str:
    """Return what health says, red or green."""
    try:
        return str(bridge.get("/health/ready"))
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


@pytest.mark.long
def test_a_token_is_renewed_while_the_client_works(guarded: Any) -> None:
    """Each token has 40 s with its leeway: the SDK puts new ones, and no send fails."""
    credential = Credential(for_s=20, early_s=280)
    with (
        client_with(guarded, credential) as client,
        client.get_queue_sender("orders") as sender,
    ):
        end_s = time.monotonic() + 55
        while time.monotonic() < end_s:
            sender.send_messages(ServiceBusMessage("x"))
            time.sleep(1)
    assert credential.count > 2


def test_auth_check_prints_what_is_granted(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Entity by entity; with a token what this one is given, or why it is refused."""
    assert main(["auth", "check", str(files.rules)]) == 0
    said = capsys.readouterr().out
    assert "every entity: Send, Listen, Manage by the shared access rule 'all'" in said
    assert "every entity: Send, Listen, Manage where sub is 'owner'" in said
    assert "orders: Send, Listen where roles is 'orders'" in said

    token = tmp_path / "token"
    token.write_text(f"Bearer {ONE.token(sub='app', roles=['orders'])}\n")
    assert main(["auth", "check", str(files.rules), "--token-file", str(token)]) == 0
    said = capsys.readouterr().out
    assert "subject 'app' of https://login.example.com/" in said
    assert "orders: Send, Listen" in said

    for text, expected in (
        (ONE.token(sub="nobody"), "nothing is granted to it"),
        (ONE.token(exp=1), "refused: ExpiredToken"),
        (Signer("one").token(), "refused: InvalidSignature"),
        (Signer("x").token(), "none of the keys of https://login.example.com/"),
        ("x", "refused: MalformedToken"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert main(["auth", "check", str(files.rules), "--token-file", "-"]) == 1
        assert expected in capsys.readouterr().out

    files.keys.write_text("{")
    assert main(["auth", "check", str(files.rules)]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert main(["auth", "check", str(tmp_path / "nowhere")]) == 2


def test_auth_check_says_that_groups_were_left_out(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entra leaves them out when there are too many."""
    files.grant({**OWNER, "claim": "groups"})
    token = tmp_path / "token"
    token.write_text(ONE.token(_claim_names={"groups": "src1"}))
    assert main(["auth", "check", str(files.rules), "--token-file", str(token)]) == 1
    assert "groups: left out of the token" in capsys.readouterr().out
