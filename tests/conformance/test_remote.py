"""A client of remote namespaces against the gateway: transports, logins, and every verb."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.commands.migration.connection import unfit_as_target
from bridge.model.entity import AuthorizationRule, Queue, Right
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import EntraToken, SharedKey, SharedSignature
from bridge.remote.errors import (
    RemoteConnectionLost,
    RemoteLockLost,
    RemoteNotFound,
    RemoteRefused,
    RemoteTimeout,
    RemoteUnauthorized,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Release
from bridge.remote.patience import Patience
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Symbol, Timestamp
from tests.conformance.client import sas
from tests.conformance.door import KEY, ROOT_RULE
from tests.conformance.remote import (
    ONCE,
    ROOT,
    WAIT_S,
    plain_address,
    remote,
    text,
    texts,
    tls_address,
)
from tests.conformance.served import gateway, queue_of, server_tls
from tests.fixtures.waiting import until

LISTENER = AuthorizationRule(name="L", primary_key="k", rights=frozenset({Right.LISTEN}))
SESSIONS = Queue(name="q", lock_duration_ms=60_000, requires_session=True)
LARGE = Queue(name="q", max_message_size_kb=4_096)

ODD = {
    "long": Long(2**40),
    "int": Int(1),
    "when": Timestamp(1_709_502_629_433),
    "symbol": Symbol("s"),
    "binary": b"\xff",
}


async def sends_and_receives(address: RemoteAddress, **options: Any) -> None:
    """One message goes and comes, and is completed."""
    async with remote(address, **options) as namespace:
        await (await namespace.sender("q")).send([text("hello")])
        receiver = await namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        assert found.message.data == b"hello"
        await receiver.settle(found, Complete())


@pytest.mark.parametrize("websocket", [False, True])
@pytest.mark.parametrize("login", ["cbs", "plain"])
async def test_over_tls_with_a_private_authority(
    certified: tuple[Path, Path], websocket: bool, login: Any
) -> None:
    """On a stream and in WebSocket frames; by a token and by a rule's key; nothing stays."""
    async with gateway(tls=server_tls(certified), is_tls_only=True) as (served, port):
        address = tls_address(port, certified[0], websocket=websocket)
        await sends_and_receives(address, login=login)
        await until(lambda: not served.admission.connections)
        assert not queue_of(served).locked


@pytest.mark.parametrize("websocket", [False, True])
async def test_an_untrusted_certificate_is_refused_at_once(
    certified: tuple[Path, Path], websocket: bool
) -> None:
    """No patience helps; the sentence says what is wrong."""
    async with gateway(tls=server_tls(certified)) as (_, port):
        address = tls_address(port, None, websocket=websocket)
        async with remote(address, patience=Patience(total_s=WAIT_S)) as namespace:
            with pytest.raises(RemoteConnectionLost, match="not trusted") as caught:
                await namespace.sender("q")
    assert not caught.value.retryable


async def test_a_certificate_of_another_host_is_refused(certified: tuple[Path, Path]) -> None:
    """It is for localhost, and the address says 127.0.0.1."""
    async with gateway(tls=server_tls(certified)) as (_, port):
        address = RemoteAddress.of(
            "one.servicebus.windows.net",
            custom_endpoint_address=f"sb://127.0.0.1:{port}",
            ca_file=certified[0],
        )
        async with remote(address) as namespace:
            with pytest.raises(RemoteConnectionLost, match="not trusted"):
                await namespace.sender("q")


async def test_a_ca_file_that_is_none_is_named(tmp_path: Path) -> None:
    """Missing, or without a certificate."""
    (tmp_path / "empty").write_text("")
    for name in ("missing", "empty"):
        async with remote(tls_address(1, tmp_path / name)) as namespace:
            with pytest.raises(RemoteRefused, match=name):
                await namespace.sender("q")


@pytest.mark.parametrize("websocket", [False, True])
async def test_without_tls(websocket: bool) -> None:
    """As at Microsoft's emulator."""
    async with gateway() as (_, port):
        await sends_and_receives(plain_address(port, websocket=websocket))


async def test_plain_never_leaves_the_machine_in_clear_text() -> None:
    """Only a key may log in so, and only over TLS or to loopback."""
    address = RemoteAddress.of("Endpoint=sb://box;UseDevelopmentEmulator=true")
    with pytest.raises(ValueError, match="clear text to box"):
        async with remote(address, login="plain"):
            pass
    with pytest.raises(ValueError, match="its key"):
        async with remote(5672, SharedSignature("x"), login="plain"):
            pass


@pytest.mark.parametrize("login", ["cbs", "plain"])
async def test_a_wrong_key_is_refused_at_once(login: Any) -> None:
    """And not tried again."""
    async with gateway() as (_, port):
        patience = Patience(total_s=WAIT_S)
        credential = SharedKey(ROOT.name, "wrong")
        async with remote(port, credential, login=login, patience=patience) as namespace:
            with pytest.raises(RemoteUnauthorized) as caught:
                await namespace.receiver("q")
    assert "wrong" not in str(caught.value)


async def test_a_right_that_is_missing() -> None:
    """The attach is refused; what the rule gives still works on the same connection."""
    rules = (ROOT_RULE, LISTENER)
    async with gateway(*rules) as (_, port), remote(port, SharedKey("L", "k")) as namespace:
        with pytest.raises(RemoteUnauthorized, match="Send"):
            await namespace.sender("q")
        assert await (await namespace.receiver("q")).receive(1, 0.01) == []


async def test_a_signature_of_somebody_else() -> None:
    """It is put as it is."""
    async with gateway() as (_, port), remote(port, SharedSignature(sas())) as namespace:
        await (await namespace.sender("q")).send(texts(1))


async def test_an_issuers_token_that_is_refused() -> None:
    """It is put as a jwt; a bridge without issuers takes none."""

    class Credential:
        def get_token(self, *scopes: str) -> Any:
            return type("Issued", (), {"token": "a.b.c", "expires_on": time.time() + 600})

    async with gateway() as (_, port), remote(port, EntraToken(Credential())) as namespace:
        with pytest.raises(RemoteUnauthorized):
            await namespace.sender("q")


async def test_an_entity_that_is_not_there() -> None:
    """For a sender, a receiver, and `$management`."""
    async with gateway() as (_, port), remote(port) as namespace:
        for ask in (namespace.sender, namespace.receiver, namespace.session_receiver):
            with pytest.raises(RemoteNotFound, match="nope"):
                await ask("nope")


async def test_nobody_listens() -> None:
    """The address is named; patience is what the caller has."""
    async with remote(plain_address(1), patience=ONCE) as namespace:
        with pytest.raises(RemoteConnectionLost, match="localhost:1 does not answer") as caught:
            await namespace.sender("q")
    assert caught.value.retryable
    assert not caught.value.in_doubt


async def test_a_batch_is_one_message_and_comes_as_many() -> None:
    """With the types of each, byte for byte."""
    sent = [
        RemoteMessage.of(
            data=b"%d" % number,
            properties=MessageProperties(message_id=f"id-{number}", subject="s"),
            application_properties=ODD,
            annotations={"x-opt-partition-key": "k"},
        )
        for number in range(5)
    ]
    async with gateway() as (_, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(sent)
        receiver = await namespace.receiver("q", "receive-and-delete")
        found = await receiver.receive(10, WAIT_S)
    assert [each.message.application_properties for each in found] == [
        each.application_properties for each in sent
    ]
    assert [each.message.body for each in found] == [each.body for each in sent]
    assert [each.message.message_id for each in found] == [f"id-{n}" for n in range(5)]
    assert [each.message.partition_key for each in found] == ["k"] * 5
    assert [each.message.sequence_number for each in found] == [1, 2, 3, 4, 5]
    assert {each.lock_token for each in found} == {None}


async def test_a_message_of_many_frames() -> None:
    """Both ways."""
    body = bytes(range(256)) * 12_000
    async with gateway(queue=LARGE) as (_, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        assert sender.max_message_size == 4_096 * 1_024
        await sender.send([RemoteMessage.of(data=body)])
        receiver = await namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        assert found.message.data == body
        await receiver.settle(found, Complete())


async def test_a_message_that_is_too_large_is_refused_before_it_is_sent() -> None:
    """By the size that the server has said; the link stays."""
    async with gateway() as (_, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        with pytest.raises(RemoteRefused, match="262144"):
            await sender.send([RemoteMessage.of(data=bytes(300_000))])
        await sender.send(texts(1))


async def test_each_way_to_settle() -> None:
    """What is left where, and what is given back."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(5))
        receiver = await namespace.receiver("q")
        found = await receiver.receive(5, WAIT_S)
        await receiver.settle(found[0], Complete())
        await receiver.settle(found[1], Abandon({"tried": Int(1)}))
        await receiver.settle(found[2], Release())
        await receiver.settle(found[3], DeadLetter("reason", "words", {"n": Long(1)}))
        again = await receiver.receive(5, WAIT_S)
        assert [each.message.data for each in again] == [b"1", b"2"]
        assert [each.message.delivery_count for each in again] == [1, 0]
        dead = await namespace.receiver("q/$DeadLetterQueue")
        (lost,) = await dead.receive(5, WAIT_S)
        assert lost.message.data == b"3"
        assert lost.message.dead_letter_reason == "reason"
        assert lost.message.dead_letter_error_description == "words"
        assert len(queue_of(served).locked) == 3  # 4, and the two that came again


async def test_settlements_that_come_together_share_a_frame() -> None:
    """By one call or by many tasks; each is confirmed."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(100))
        receiver = await namespace.receiver("q")
        found = await receiver.receive(100, WAIT_S)
        assert len(found) == 100
        await receiver.settle_all(found[:50], Complete())
        await asyncio.gather(*(receiver.settle(each, Complete()) for each in found[50:]))
        assert not queue_of(served).locked
        assert not queue_of(served).active


async def test_a_lock_that_has_ended() -> None:
    """Is told for the one message, and the link stays."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(2))
        receiver = await namespace.receiver("q")
        first, second = await receiver.receive(2, WAIT_S)
        await until(lambda: not queue_of(served).locked, within_s=WAIT_S)
        with pytest.raises(RemoteLockLost) as caught:
            await receiver.settle(first, Complete())
        assert not caught.value.in_doubt
        again = await receiver.receive(2, WAIT_S)
        assert len(again) == 2
        await receiver.settle_all(again, Complete())
        with pytest.raises(RemoteLockLost):
            await receiver.settle(second, Complete())


async def test_nothing_comes_later_than_receive() -> None:
    """Unused credit is given back: what is sent afterwards is locked by nobody."""
    async with gateway() as (served, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        receiver = await namespace.receiver("q")
        await sender.send(texts(1))
        assert len(await receiver.receive(10, WAIT_S)) == 1
        await sender.send(texts(3))
        await asyncio.sleep(0.05)
        assert len(queue_of(served).active) == 3
        assert len(await receiver.receive(10, WAIT_S)) == 3


async def test_an_empty_queue() -> None:
    """The wait is as long as asked; the message that comes then is still received."""
    async with gateway() as (_, port), remote(port) as namespace:
        receiver = await namespace.receiver("q")
        began_s = time.monotonic()
        assert await receiver.receive(5, 0.3) == []
        assert 0.3 <= time.monotonic() - began_s < WAIT_S
        waiting = asyncio.create_task(receiver.receive(5, WAIT_S))
        await (await namespace.sender("q")).send(texts(1))
        assert len(await waiting) == 1


async def test_messages_that_come_ahead() -> None:
    """Credit is topped up as they are taken; what is left is given back at the end."""
    async with gateway() as (served, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        for _ in range(5):
            await sender.send(texts(10))
        receiver = await namespace.receiver("q", credit=8)
        taken = 0
        while taken < 30:
            found = await receiver.receive(5, WAIT_S)
            taken += len(found)
            await receiver.settle_all(found, Complete())
        await receiver.close()
        await until(lambda: not queue_of(served).locked)
        assert len(queue_of(served).active) == 50 - taken
    with pytest.raises(ValueError, match="do not come ahead"):
        async with gateway() as (_, port), remote(port) as namespace:
            await namespace.receiver("q", "receive-and-delete", credit=5)


async def test_credit_until_a_message_is_settled() -> None:
    """No more are unsettled at a time, those that came ahead with them; a settlement makes room."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(10))
        receiver = await namespace.receiver("q", credit=4, until_settled=True)
        found: list[Any] = []
        while len(found) < 4:
            found += await receiver.receive(9, WAIT_S, more_s=0)
        assert await receiver.receive(9, 0.2, more_s=0) == []
        assert len(queue_of(served).locked) == 4
        await receiver.settle_all(found[:2], Complete())
        more = await receiver.receive(9, WAIT_S, more_s=0)
        assert more[0].message.data == b"4"
        assert len(queue_of(served).locked) == 4


async def test_what_is_given_back_makes_room_at_once() -> None:
    """Nothing answers a release, and yet messages come ahead again."""
    async with gateway() as (_, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(10))
        receiver = await namespace.receiver("q", credit=4, until_settled=True)
        found: list[Any] = []
        while len(found) < 4:
            found += await receiver.receive(9, WAIT_S, more_s=0)
        await receiver.settle_all(found, Release())
        again = await receiver.receive(9, WAIT_S, more_s=0)
        assert again[0].message.data == b"0"


@pytest.mark.long
async def test_a_receiver_that_keeps_an_order_is_attached_once() -> None:
    """What was on its way when the link ended is locked: what stands behind it would come first."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(3))
        receiver = await namespace.receiver("q", credit=1, until_settled=True, once=True)
        (found,) = await receiver.receive(1, WAIT_S, more_s=0)
        for connection in list(served.connections):
            connection.say_goodbye()
        link = receiver._link
        assert link is not None
        await until(lambda: not link.is_open)
        with pytest.raises(RemoteConnectionLost):
            await receiver.receive(1, WAIT_S, more_s=0)
        assert found.message.data == b"0"


async def test_a_receiver_that_closes_gives_back_what_it_has_not_settled() -> None:
    """At once, and uncounted."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(3))
        receiver = await namespace.receiver("q")
        found = await receiver.receive(3, WAIT_S)
        await receiver.settle(found[0], Complete())
        await receiver.close()
        await until(lambda: len(queue_of(served).active) == 2)
        other = await namespace.receiver("q")
        again = await other.receive(3, WAIT_S)
        assert [each.message.delivery_count for each in again] == [0, 0]
        with pytest.raises(RemoteConnectionLost, match="closed by this client"):
            await receiver.receive(1, 0.1)


async def test_many_sends_at_once() -> None:
    """More than the server's credit, on one link."""
    async with gateway() as (served, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        await asyncio.gather(*(sender.send(texts(1)) for _ in range(2_500)))
        assert len(queue_of(served).active) == 2_500


async def test_a_session() -> None:
    """The next one, and one by name; its lock, its state, its order."""
    async with gateway(queue=SESSIONS) as (_, port), remote(port) as namespace:
        sender = await namespace.sender("q")
        for number in range(3):
            await sender.send([text(f"{number}", "A")])
        held = await namespace.session_receiver("q")
        assert held.session_id == "A"
        assert held.locked_until_ms > time.time() * 1000 + 30_000
        assert await held.renew() == held.locked_until_ms
        assert await held.state() is None
        await held.set_state(b"\x00state")
        assert await held.state() == b"\x00state"
        found = await held.receive(3, WAIT_S)
        assert [each.message.data for each in found] == [b"0", b"1", b"2"]
        assert found[0].message.session_id == "A"
        await held.settle_all(found, Complete())
        await held.close()
        again = await namespace.session_receiver("q", "A")
        assert await again.state() == b"\x00state"
        await again.set_state(None)
        assert await again.state() is None


async def test_no_session_in_time() -> None:
    """Is a time-out that says so; a named session is there at once, even empty."""
    async with gateway(queue=SESSIONS) as (_, port), remote(port) as namespace:
        with pytest.raises(RemoteTimeout):
            await namespace.session_receiver("q", max_wait_s=0.5)
        held = await namespace.session_receiver("q", "B")
        assert await held.receive(1, 0.05) == []


async def test_a_session_that_another_holds() -> None:
    """Is refused; not by any patience of the client's."""
    async with gateway(queue=SESSIONS) as (_, port), remote(port) as one, remote(port) as other:
        await one.session_receiver("q", "A")
        with pytest.raises(RemoteRefused) as caught:
            await other.session_receiver("q", "A", max_wait_s=0.5)
    assert caught.value.condition == "com.microsoft:session-cannot-be-locked"
    assert caught.value.retryable


async def test_a_server_is_known_by_the_name_by_which_it_opens() -> None:
    """A bridge's is a busbridge's; what is another's can be no target of a migration."""
    async with gateway() as (_, port), remote(port) as namespace:
        assert unfit_as_target("there", await namespace.server_id()) == ""
    async with gateway(container_id="another") as (_, port), remote(port) as namespace:
        said = unfit_as_target("there", await namespace.server_id())
    assert said.startswith("'there' is no busbridge: it calls itself 'another'.")
    assert "`busbridge serve`" in said


async def test_peek_schedule_cancel_and_renew() -> None:
    """At `$management`."""
    at_ms = int(time.time() * 1000) + 3_600_000
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(3))
        management = await namespace.management("q")
        later = RemoteMessage.of(data=b"l", annotations={"x-opt-scheduled-enqueue-time": at_ms})
        numbers = await management.schedule([later, later])
        assert len(numbers) == 2
        await management.cancel(numbers)
        with pytest.raises(RemoteNotFound):
            await management.cancel(numbers[:1])
        peeked = await management.peek(2, 10)
        assert [each.data for each in peeked] == [b"1", b"2"]
        assert await management.peek(50, 10) == []
        receiver = await namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        assert found.lock_token is not None
        (until_ms,) = await management.renew_lock([found.lock_token])
        assert until_ms >= (found.message.locked_until_ms or 0)
        await management.close()
        await management.settle_deferred([found.lock_token], Complete())
        assert not queue_of(served).locked


async def test_a_message_is_settled_by_its_lock_when_its_link_has_ended() -> None:
    """As the SDKs do; a release is not possible, and says so."""
    async with gateway() as (served, port), remote(port) as namespace:
        await (await namespace.sender("q")).send(texts(2))
        receiver = await namespace.receiver("q")
        first, second = await receiver.receive(2, WAIT_S)
        for connection in list(served.connections):
            for link in list(connection.links._alive):
                link.link.detach("amqp:link:detach-forced", "idle")
            connection.flush()
        await until(lambda: not receiver._link.is_open)
        await receiver.settle(first, Complete())
        with pytest.raises(RemoteLockLost, match="ends by itself"):
            await receiver.settle(second, Release())
        assert len(queue_of(served).locked) == 1


async def test_a_token_is_renewed_before_it_ends() -> None:
    """The links live on, past the end of the first token."""
    credential = SharedKey(ROOT.name, KEY, lifetime_s=2)
    async with gateway() as (_, port), remote(port, credential) as namespace:
        sender = await namespace.sender("q")
        end_s = time.monotonic() + 4.5
        sent = 0
        while time.monotonic() < end_s:
            await sender.send(texts(1))
            sent += 1
            await asyncio.sleep(0.1)
        assert sender._link.is_open
        receiver = await namespace.receiver("q", "receive-and-delete")
        assert len(await receiver.receive(sent + 1, WAIT_S)) == sent


async def test_a_signature_that_ends_ends_its_links() -> None:
    """With the server's words; nothing renews it."""
    text_ = SharedKey(ROOT.name, KEY).sign("sb://localhost/q", int(time.time()) + 2)
    async with gateway() as (_, port), remote(port, SharedSignature(text_)) as namespace:
        receiver = await namespace.receiver("q")
        with pytest.raises(RemoteUnauthorized):
            await receiver.receive(1, WAIT_S)


async def test_a_bridge_that_stops_and_comes_back() -> None:
    """Sender and receiver come back by themselves, to what is there then."""
    async with gateway() as (served, port), remote(port) as namespace:
        sender, receiver = await namespace.sender("q"), await namespace.receiver("q")
        await sender.send(texts(1))
        for connection in list(served.connections):
            connection.say_goodbye()
        await until(lambda: not sender._link.is_open)
        await sender.send(texts(1))
        found = await receiver.receive(5, WAIT_S)
        assert len(found) == 2
        await receiver.settle_all(found, Complete())
