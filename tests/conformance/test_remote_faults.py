"""A client of remote namespaces when its server is busy, detaches, is silent, or cuts it off."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from bridge.machine.amqp10.limits import Limits
from bridge.remote.connection import RemoteConnection
from bridge.remote.credentials import SharedKey
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import (
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteLinkEnded,
    RemoteLockLost,
    RemoteNotFound,
    RemoteRefused,
    RemoteTimeout,
    RemoteUnauthorized,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete, DeadLetter, Release
from bridge.remote.patience import Patience
from bridge.remote.receiver import RemoteReceiver
from bridge.wire.amqp10.performatives import Accepted, Released
from bridge.wire.amqp10.types import Array, Int
from tests.conformance.remote import ONCE, QUICK, ROOT, WAIT_S, Waits, remote, text, texts
from tests.conformance.served import gateway
from tests.fixtures.scripted_server import (
    ScriptedConnection,
    rejected,
    scripted_server,
)
from tests.fixtures.waiting import until

BUSY = "com.microsoft:server-busy"
PAUSE = "50009: The request was throttled. Please wait 6 seconds and try again."
LOCK_LOST = "com.microsoft:message-lock-lost"
MESSAGE = text("m").encode()


async def test_a_busy_server_is_given_its_pause() -> None:
    """At least as long as it asks; without a word 4 s; then the message is sent, once."""
    waits = Waits()
    async with (
        scripted_server() as server,
        remote(server.port, patience=waits.patience) as namespace,
    ):
        sender = await namespace.sender("q")
        server.outcomes = [rejected(BUSY, PAUSE), rejected(BUSY)]
        await sender.send([text("m")])

        assert server.messages == [MESSAGE]
    assert len(waits.seconds) == 2
    assert waits.seconds[0] >= 6.0
    assert waits.seconds[1] >= 4.0


async def test_a_server_that_stays_busy() -> None:
    """Is told when the patience ends: nothing was done."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [rejected(BUSY, PAUSE)]
        with pytest.raises(RemoteBusy) as caught:
            await sender.send([text("m")])
    assert caught.value.pause_s == 6.0
    assert not caught.value.in_doubt


async def test_a_busy_server_at_attach() -> None:
    """Is asked again."""
    waits = Waits()
    async with (
        scripted_server() as server,
        remote(server.port, patience=waits.patience) as namespace,
    ):
        server.refusals = [BUSY]
        await namespace.receiver("q")
    assert waits.seconds[0] >= 4.0


@pytest.mark.parametrize("is_whole", [True, False], ids=["connection", "link"])
async def test_what_a_busy_server_ends_comes_back_when_its_pause_is_over(is_whole: bool) -> None:
    """Of an idle client the pause is kept by the next call, whoever makes it, and once."""
    waits = Waits()
    async with (
        scripted_server() as server,
        remote(server.port, patience=waits.patience) as namespace,
    ):
        sender = await namespace.sender("q")
        if is_whole:
            server.close(BUSY, PAUSE)
        else:
            server.detach("q", BUSY, PAUSE, receives=False)
        await until(lambda: not sender._link.is_open)
        await sender.send([text("m")])
        assert server.messages == [MESSAGE]
        (waited_s,) = waits.seconds
        assert waited_s >= 5.0
        await namespace.receiver("q")
        assert waits.seconds == [waited_s]
    assert server.opened == 1 + is_whole


@pytest.mark.parametrize("opens", [True, False])
async def test_a_connection_that_is_closed_as_busy_is_a_busy_server(opens: bool) -> None:
    """For what was under way, in doubt; for what comes next, as long as it asks to wait."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        if opens:
            server.outcomes = [lambda connection, event: server.close(BUSY, PAUSE)]
            with pytest.raises(RemoteBusy) as caught:
                await sender.send([text("m")])
            assert (caught.value.in_doubt, caught.value.pause_s) == (True, 6.0)
        else:
            server.close(BUSY, PAUSE)
            await until(lambda: not sender._link.is_open)
        for call in (lambda: sender.send([text("m")]), lambda: namespace.receiver("q")):
            with pytest.raises(RemoteBusy) as caught:
                await call()
            assert not caught.value.in_doubt
            assert 5.0 < caught.value.pause_s <= 6.0
        assert server.opened == 1


async def test_a_token_that_a_busy_server_does_not_renew_is_put_after_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The renewals are not made faster than it asks."""
    credential = SharedKey(ROOT.name, ROOT.key, lifetime_s=40)
    monkeypatch.setattr("bridge.remote.authorization.RENEWED_AFTER", 0.001)
    busy_reply = {"status-code": Int(503), "error-condition": BUSY, "status-description": PAUSE}
    async with scripted_server() as server, remote(server.port, credential) as namespace:
        await namespace.sender("q")
        server.put_replies = [(busy_reply, None)]
        await until(lambda: len(server.tokens) >= 2)
        began_s = time.monotonic()
        await until(lambda: len(server.tokens) >= 3)
        assert time.monotonic() - began_s >= 5.9


async def test_a_link_that_was_idle_is_attached_again() -> None:
    """By a sender's next send; by a receiver that waits meanwhile. Nobody is told."""
    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        sender, receiver = await namespace.sender("q"), await namespace.receiver("q")
        server.detach("q", "amqp:link:detach-forced", receives=False)
        await until(lambda: not sender._link.is_open)
        await sender.send([text("m")])
        assert server.messages == [MESSAGE]

        waiting = asyncio.create_task(receiver.receive(1, WAIT_S))
        await until(lambda: receiver._link.credit > 0)
        server.detach("q", "amqp:link:detach-forced", receives=True)
        await until(lambda: server.attaches.count(("q", True)) == 2)
        await until(lambda: server.credit("q") > 0)
        server.deliver("q", MESSAGE)
        (found,) = await waiting
        assert found.message.data == b"m"
    assert server.opened == 1


async def test_what_was_locked_is_given_up_together_at_a_server_that_is_away() -> None:
    """Settled one by one, by their locks, each would wait until the server is not reached."""
    tries = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    async with gateway() as (served, port), remote(port, patience=ONCE) as namespace:
        receiver = await namespace.receiver("q", credit=20)
        await (await namespace.sender("q")).send(texts(20))
        found: list[RemoteDelivery] = []
        while len(found) < 20:
            found += await receiver.receive(20, WAIT_S)
        await served.stop()
        await until(lambda: not receiver._link.is_open)
        async with await asyncio.start_server(hang_up, "127.0.0.1", port):
            with pytest.raises(RemoteConnectionLost):
                await receiver.settle_all(found, Complete())
    assert tries == 1


async def test_a_session_ends_with_the_link_that_it_was_begun_for() -> None:
    """However the link has ended: idle, refused, or closed; a connection has so many channels."""
    quick = Patience(total_s=WAIT_S, wait_s=0.01)
    async with scripted_server() as server, remote(server.port, patience=quick) as namespace:
        sender, receiver = await namespace.sender("q"), await namespace.receiver("q")
        sessions = server.connections[0].endpoint.sessions
        with_tokens = len(sessions)
        for _ in range(3):
            for link, receives in ((sender, False), (receiver, True)):
                server.detach("q", "amqp:link:detach-forced", receives=receives)
                await until(lambda link=link: not link._link.is_open)
                await link.attach()
            server.refusals = ["amqp:not-allowed"] * 2
            with pytest.raises(RemoteRefused):
                await namespace.management("q")
            server.refusals = []
            await (await namespace.management("q")).close()
        await until(lambda: len(sessions) == with_tokens)
    assert server.opened == 1


def cut_off(connection: ScriptedConnection, event: Any) -> None:
    """Cut the connection off with a message that came, and say nothing of it."""
    connection.transport.abort()


async def test_a_send_whose_connection_is_lost_is_in_doubt() -> None:
    """It is not sent again by itself: it could be there twice. The next send goes."""
    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [cut_off]
        with pytest.raises(RemoteConnectionLost) as caught:
            await sender.send([text("m")])
        assert caught.value.in_doubt
        assert caught.value.retryable
        assert server.messages == []

        await sender.send([text("m")])
        assert server.messages == [MESSAGE]
    assert server.opened == 2


async def test_a_send_whose_link_is_detached_is_in_doubt() -> None:
    """Likewise."""
    async with scripted_server() as server, remote(server.port) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [
            lambda connection, event: event.link.detach("amqp:link:detach-forced", "idle")
        ]
        with pytest.raises(RemoteLinkEnded) as caught:
            await sender.send([text("m")])
        assert caught.value.in_doubt


async def test_a_send_that_waits_for_a_lost_connection_is_not_in_doubt() -> None:
    """Nothing had been written: it is sent on the next connection."""
    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        sender = await namespace.sender("q")
        server.give_no_credit("q")
        await until(lambda: sender._link.credit == 0)
        sending = asyncio.create_task(sender.send([text("m")]))
        await until(lambda: not sender._has_credit.is_set())
        server.cut()
        await sending
        assert server.messages == [MESSAGE]


async def test_a_send_that_is_not_answered_is_in_doubt() -> None:
    """After its time."""
    async with scripted_server() as server, remote(server.port) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [lambda connection, event: None]
        with pytest.raises(RemoteTimeout) as caught:
            await sender.send([text("m")], within_s=0.2)
        assert caught.value.in_doubt
        await sender.send([text("n")])


async def test_a_send_that_gets_no_credit_is_not_in_doubt() -> None:
    """Nothing was written."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        server.give_no_credit("q")
        await until(lambda: sender._link.credit == 0)
        with pytest.raises(RemoteTimeout) as caught:
            await sender.send([text("m")], within_s=0.2)
        assert not caught.value.in_doubt


async def test_a_message_that_is_released_by_the_server_is_sent_again() -> None:
    """It has not taken it."""
    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        server.outcomes = [Released()]
        await (await namespace.sender("q")).send([text("m")])
        assert server.messages == [MESSAGE]


async def test_each_of_many_sends_knows_its_own_fate() -> None:
    """Of those under way when the connection ends, the unanswered are in doubt, no other."""
    taken = 40

    def some(connection: ScriptedConnection, event: Any) -> Any:
        return Accepted() if len(server.messages) < taken else None

    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [some] * 60
        sends = [asyncio.create_task(sender.send([message])) for message in texts(60)]
        await until(lambda: not server.outcomes)
        await until(lambda: sum(each.done() for each in sends) == taken)
        server.cut()
        results = await asyncio.gather(*sends, return_exceptions=True)
    done = [number for number, each in enumerate(results) if each is None]
    doubtful = [each for each in results if isinstance(each, RemoteConnectionLost)]
    assert done == list(range(taken))
    assert len(doubtful) == 20
    assert all(each.in_doubt for each in doubtful)


async def test_settlements_whose_connection_is_lost_are_in_doubt() -> None:
    """And one that the server has refused says why."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        receiver = await namespace.receiver("q")
        waiting = asyncio.create_task(receiver.receive(3, WAIT_S))
        await until(lambda: server.credit("q") == 3)
        for _ in range(3):
            server.deliver("q", MESSAGE)
        first, second, third = await waiting
        server.settlements = [rejected(LOCK_LOST)]
        with pytest.raises(RemoteLockLost) as caught:
            await receiver.settle(first, Complete())
        assert not caught.value.in_doubt
        server.settlements = [None, None]
        settling = asyncio.create_task(receiver.settle_all((second, third), Complete()))
        await until(lambda: len(server.settled) == 3)
        server.cut()
        with pytest.raises(RemoteConnectionLost) as lost:
            await settling
        assert lost.value.in_doubt


async def test_a_settlement_that_is_not_confirmed_is_in_doubt() -> None:
    """After its time; a late confirmation does no harm."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        receiver = await namespace.receiver("q", credit=1)
        await until(lambda: server.credit("q") == 1)
        server.deliver("q", MESSAGE)
        (found,) = await receiver.receive(1, WAIT_S)
        server.settlements = [None]
        with pytest.raises(RemoteTimeout) as caught:
            await receiver.settle(found, Complete(), within_s=0.2)
        assert caught.value.in_doubt


async def test_a_dead_letter_that_is_answered_with_its_own_rejection_is_done() -> None:
    """Of the outcomes, this one is told and confirmed as a rejection."""
    async with scripted_server() as server, remote(server.port) as namespace:
        receiver = await namespace.receiver("q", credit=2)
        await until(lambda: server.credit("q") == 2)
        server.deliver("q", MESSAGE)
        server.deliver("q", MESSAGE)
        found = await receiver.receive(2, WAIT_S)
        await receiver.settle(found[0], DeadLetter("reason", "words"))
        (_, outcome, _), *_ = server.settled
        assert outcome.error.condition == "com.microsoft:dead-letter"
        assert outcome.error.info["DeadLetterReason"] == "reason"
        server.settlements = [Accepted()]
        with pytest.raises(RemoteRefused, match="instead"):
            await receiver.settle(found[1], DeadLetter())


async def test_a_server_that_never_gives_credit_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes late is kept for the next call, and released at the end."""
    monkeypatch.setattr("bridge.remote.receiver.DRAIN_S", 0.3)
    async with scripted_server() as server, remote(server.port) as namespace:
        server.drains = False
        receiver = await namespace.receiver("q")
        waiting = asyncio.create_task(receiver.receive(5, WAIT_S))
        await until(lambda: server.credit("q") == 5)
        server.deliver("q", MESSAGE)
        assert len(await waiting) == 1
        server.deliver("q", text("late").encode())
        (late,) = await receiver.receive(1, WAIT_S)
        assert late.message.data == b"late"
        await receiver.close()
        await until(lambda: len(server.settled) == 2)
        assert all(outcome == Released() and alone for _, outcome, alone in server.settled)


async def test_a_message_that_is_none_can_still_be_settled() -> None:
    """It is given out with its bytes."""
    async with scripted_server() as server, remote(server.port) as namespace:
        receiver = await namespace.receiver("q", credit=2)
        await until(lambda: server.credit("q") == 2)
        server.deliver("q", b"\xff\xff\xff")
        server.deliver("q", MESSAGE)
        spoilt, whole = await receiver.receive(2, WAIT_S)
        assert spoilt.message.unread == spoilt.message.encode() == b"\xff\xff\xff"
        assert spoilt.message.body_kind == "none"
        assert whole.message.data == b"m"
        await receiver.settle(spoilt, DeadLetter("Unreadable"))


async def test_a_server_that_is_silent_is_given_up() -> None:
    """By heartbeats that do not come; what waits is told, in doubt."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        connection = namespace._connection
        assert connection is not None
        endpoint = connection._endpoint
        endpoint.limits = replace(endpoint.limits, idle_time_out_ms=150)
        connection._tick.cancel()
        connection._on_tick()
        server.is_silent = True
        with pytest.raises(RemoteConnectionLost, match="inactive") as caught:
            await sender.send([text("m")])
        assert caught.value.in_doubt


async def test_a_quiet_client_is_kept_by_its_heartbeats() -> None:
    """As often as the server asks for them."""
    limits = replace(Limits(), idle_time_out_ms=1_000)
    async with scripted_server(limits) as server, remote(server.port) as namespace:
        sender = await namespace.sender("q")
        (held,) = server.connections
        began_s = time.monotonic()
        while time.monotonic() < began_s + 2.5:
            assert held.endpoint.tick(held._now_ms()) == []
            held.flush()
            await asyncio.sleep(0.1)
        await sender.send([text("m")])
    assert server.opened == 1


async def test_a_server_that_does_not_open_the_connection() -> None:
    """Is given up after its time, with its address."""
    async with scripted_server() as server:
        server.is_silent = True
        async with remote(server.port, patience=ONCE) as namespace:
            connection = RemoteConnection(namespace.address)
            with pytest.raises(RemoteConnectionLost, match="within 0 s"):
                await connection.open(within_s=0.2)
            await until(lambda: not server.connections)


async def test_an_attach_that_is_not_answered() -> None:
    """Is given up after its time; the connection stays."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        await namespace.sender("other")
        server.refusals = [""]
        with pytest.raises(RemoteTimeout, match="attach of q"):
            await asyncio.wait_for(attach_within(namespace, 0.2), WAIT_S)
        await namespace.sender("other2")
    assert server.opened == 1


async def attach_within(namespace: RemoteNamespace, seconds: float) -> None:
    """Attach a receiver whose patience with an answer is short."""
    receiver = RemoteReceiver(namespace, "q", "peek-lock")
    receiver._attach_s = seconds
    await receiver.attach()


@pytest.mark.parametrize("condition", ["amqp:connection:forced", "amqp:internal-error"])
async def test_a_server_that_closes_the_connection(condition: str) -> None:
    """Waiting calls raise its condition; the next call connects again."""
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        sender = await namespace.sender("q")
        server.outcomes = [lambda connection, event: server.close(condition)]
        with pytest.raises(RemoteConnectionLost) as caught:
            await sender.send([text("m")])
        assert caught.value.condition == condition
        assert caught.value.in_doubt
        await sender.send([text("n")])
    assert server.opened == 2


# -- tokens


async def test_a_token_is_put_once_for_an_entity() -> None:
    """For any number of links; another entity has its own."""
    async with scripted_server() as server, remote(server.port) as namespace:
        await asyncio.gather(*(namespace.sender("q") for _ in range(5)))
        await namespace.receiver("q")
        assert len(server.tokens) == 1
        assert server.token_fields["name"] == f"sb://localhost:{server.port}/q"
        assert server.token_fields["type"] == "servicebus.windows.net:sastoken"
        await namespace.receiver("r")
        assert len(server.tokens) == 2


async def test_a_token_that_is_refused_and_one_that_is_not_answered_well() -> None:
    """By the condition, or else by the status; the next attach puts another."""
    words = {"status-description": "words"}
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        for reply, kind in (
            ({"status-code": Int(401), **words}, RemoteUnauthorized),
            ({"status-code": Int(404), **words}, RemoteNotFound),
            ({"status-code": Int(503), **words, "error-condition": BUSY}, RemoteBusy),
            ({"status-code": Int(500), **words}, RemoteRefused),
            ({**words}, RemoteRefused),
        ):
            server.put_replies = [(reply, None)]
            with pytest.raises(RemoteError, match="words") as caught:
                await namespace.sender("q")
            assert type(caught.value) is kind
        await namespace.sender("q")
        assert len(server.tokens) == 6


async def test_a_renewal_that_fails_for_a_while_is_made_again() -> None:
    """Within the life of the old token."""
    credential = SharedKey(ROOT.name, ROOT.key, lifetime_s=4)
    async with scripted_server() as server, remote(server.port, credential) as namespace:
        sender = await namespace.sender("q")
        server.put_replies = [({"status-code": Int(500), "status-description": "oh"}, None)]
        await until(lambda: len(server.tokens) == 3)
        assert len(set(server.tokens)) >= 2
        await sender.send([text("m")])


async def test_a_token_that_has_ended_is_put_anew() -> None:
    """The server detaches its links; the next send attaches with another token."""
    waits = Waits()
    async with (
        scripted_server() as server,
        remote(server.port, patience=waits.patience) as namespace,
    ):
        sender = await namespace.sender("q")
        server.detach("q", "amqp:unauthorized-access", receives=False)
        await until(lambda: not sender._link.is_open)
        await sender.send([text("m")])
        assert server.messages == [MESSAGE]


# -- requests


async def test_what_only_reads_is_asked_again() -> None:
    """When the connection is lost; what changes something is in doubt."""
    peeks = 0

    def peek(body: Any) -> Any:
        nonlocal peeks
        peeks += 1
        if peeks == 1:
            server.cut()
        reply = {"statusCode": Int(200)}
        return reply, {"messages": [{"message": MESSAGE}]}

    def cancel(body: Any) -> Any:
        server.cut()
        return {"statusCode": Int(200)}, {}

    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        server.replies["com.microsoft:peek-message"] = peek
        server.replies["com.microsoft:cancel-scheduled-message"] = cancel
        management = await namespace.management("q")
        (found,) = await management.peek(1, 1)
        assert found.data == b"m"
        assert peeks == 2
        with pytest.raises(RemoteConnectionLost) as caught:
            await management.cancel([1])
        assert caught.value.in_doubt


async def test_a_reply_that_is_not_what_was_asked_for() -> None:
    """Is named, and nothing hangs."""
    ok = {"statusCode": Int(200)}
    async with scripted_server() as server, remote(server.port, patience=ONCE) as namespace:
        management = await namespace.management("q")
        for reply in (
            (ok, None),
            (ok, {"messages": [{"message": b"\xff"}]}),
            (ok, {"messages": [{}]}),
            ({}, {}),
            ({"statusCode": Int(410), "errorCondition": LOCK_LOST}, {}),
        ):
            server.replies["com.microsoft:peek-message"] = lambda body, reply=reply: reply
            with pytest.raises(RemoteError):
                await management.peek(1, 1)
        server.replies["com.microsoft:schedule-message"] = lambda body: (
            ok,
            {"sequence-numbers": Array("long", (7,))},
        )
        later = RemoteMessage.of(annotations={"x-opt-scheduled-enqueue-time": 2**42})
        assert await management.schedule([later]) == [7]


async def test_a_receiver_that_is_cancelled_loses_nothing() -> None:
    """Messages that have come for a cancelled call are returned by the next one."""
    async with scripted_server() as server, remote(server.port) as namespace:
        receiver = await namespace.receiver("q")
        waiting = asyncio.create_task(receiver.receive(2, WAIT_S))
        await until(lambda: server.credit("q") == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.deliver("q", MESSAGE)
        (found,) = await receiver.receive(1, WAIT_S)
        await receiver.settle(found, Release())


async def test_a_namespace_that_is_closed_ends_the_calls_that_are_under_way() -> None:
    """A request without a reply, and an attach without an answer; none waits for its time-out."""
    async with scripted_server() as server, remote(server.port) as namespace:
        server.replies["com.microsoft:peek-message"] = lambda body: None
        management = await namespace.management("q")
        server.refusals = [""]
        calls = [
            asyncio.create_task(management.peek(1, 1)),
            asyncio.create_task(namespace.sender("q")),
        ]
        await until(lambda: len(server.requests) == 2 and ("q", False) in server.attaches)
        await namespace.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [RemoteConnectionLost] * 2


async def test_a_namespace_that_is_closed_makes_no_new_connection() -> None:
    """And says so."""
    async with scripted_server() as server:
        async with remote(server.port) as namespace:
            sender = await namespace.sender("q")
        for call in (sender.send([text("m")]), namespace.sender("q")):
            with pytest.raises(RemoteConnectionLost, match="closed by this client"):
                await call
        assert server.opened == 1
