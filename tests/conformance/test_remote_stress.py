"""A client of remote namespaces through a tap that plays Azure under stress, before a bridge.

Whatever happens, a message is there once, or its sender was told that it is in doubt.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.entity import Queue
from bridge.remote.credentials import EntraToken
from bridge.remote.errors import (
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteLinkEnded,
    RemoteTimeout,
    RemoteUnauthorized,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Complete
from bridge.wire.amqp10.types import Timestamp
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.remote import ROOT, WAIT_S, Waits, remote, text, texts
from tests.conformance.served import Certified, gateway
from tests.conformance.stressed import Stressed, stressed
from tests.fixtures.tap import (
    BUSY,
    BUSY_TEXT,
    Play,
    busy,
    close,
    cut,
    detach,
    never,
    refuse,
    tap,
    timed_out,
)
from tests.fixtures.waiting import until


async def bodies(stress: Stressed, entity: str = "q") -> list[bytes]:
    """Return the bodies of all messages of an entity, as a peek shows them."""
    management = await stress.namespace.management(entity)
    return [each.data for each in await management.peek(1, 250)]


async def test_what_is_not_played_is_the_bridges_answer(certified: Certified) -> None:
    """Messages, settlements, sessions and requests pass, with their credit and their tokens."""
    async with stressed(certified) as stress:
        sender = await stress.namespace.sender("q")
        await sender.send([text("one")])
        await sender.send(texts(20))
        assert len(await bodies(stress)) == 21
        receiver = await stress.namespace.receiver("q")
        taken: list[bytes] = []
        while len(taken) < 21:
            found = await receiver.receive(8, WAIT_S)
            taken += [each.message.data for each in found]
            await receiver.settle_all(found, Complete())
        assert taken == [b"one", *(str(each).encode() for each in range(20))]
        assert await bodies(stress) == []
        await receiver.close()

        await (await stress.namespace.sender("s")).send([text("in", "A")])
        session = await stress.namespace.session_receiver("s")
        assert session.session_id == "A"
        await session.set_state(b"state")
        assert await session.state() == b"state"
        (found_one,) = await session.receive(1, WAIT_S)
        await session.settle(found_one, Complete())
        assert stress.azure.is_done
        assert stress.waits.seconds == []


def in_a_day() -> RemoteMessage:
    """Return a message that is enqueued in the far future."""
    later = Timestamp(2**42)
    return RemoteMessage.of(data=b"m", annotations={"x-opt-scheduled-enqueue-time": later})


# -- busy


async def test_a_throttled_namespace_is_given_its_pause(certified: Certified) -> None:
    """By attaches of each kind, sends and requests; then all is done, once."""
    async with stressed(certified) as stress:
        azure, namespace = stress.azure, stress.namespace
        azure.when("attach", busy, address="q", times=2)
        sender = await namespace.sender("q")
        azure.when("send", busy, times=2)
        await sender.send([text("m")])
        azure.when("attach", busy, address="q/$management")
        management = await namespace.management("q")
        azure.when("request", busy, operation="com.microsoft:peek-message")
        assert await bodies(stress) == [b"m"]
        azure.when("request", busy, operation="com.microsoft:schedule-message")
        (number,) = await management.schedule([in_a_day()])
        azure.when("request", busy, operation="com.microsoft:cancel-scheduled-message")
        await management.cancel([number])
        azure.when("attach", busy, address="q")
        receiver = await namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        assert found.message.data == b"m"
        assert azure.is_done
        assert len(stress.waits.seconds) == 9
        assert all(each >= 4.0 for each in stress.waits.seconds)


async def test_a_settlement_that_a_throttled_namespace_refuses(certified: Certified) -> None:
    """It is made by the lock when the pause is over; of several it is said, and not in doubt."""
    async with stressed(certified) as stress:
        await (await stress.namespace.sender("q")).send(texts(2))
        receiver = await stress.namespace.receiver("q")
        first = (await receiver.receive(1, WAIT_S))[0]
        stress.azure.when("settle", busy)
        await receiver.settle(first, Complete())
        assert [each >= 4.0 for each in stress.waits.seconds] == [True]
        (second,) = await receiver.receive(1, WAIT_S)
        stress.azure.when("settle", busy)
        with pytest.raises(RemoteBusy) as caught:
            await receiver.settle_all([second], Complete())
        assert caught.value.pause_s == 2.0
        assert not caught.value.in_doubt
        await receiver.settle(second, Complete())
        assert await bodies(stress) == []


@pytest.mark.parametrize("play", [detach(BUSY, BUSY_TEXT), detach()])
async def test_a_link_that_is_detached_with_a_send_under_way(
    certified: Certified, play: Play
) -> None:
    """Whatever its server says, the send is in doubt, and it is not made again by itself."""
    async with stressed(certified) as stress:
        sender = await stress.namespace.sender("q")
        for kind in ("send", "sent"):
            stress.azure.when(kind, play)
            with pytest.raises(RemoteError) as caught:
                await sender.send([text(kind)])
            assert caught.value.in_doubt
        await sender.send([text("last")])
        assert await bodies(stress) == [b"sent", b"last"]


# -- links that end


async def test_idle_links_come_back(certified: Certified) -> None:
    """Of senders, receivers and requests; what was locked is settled by its lock."""
    async with stressed(certified) as stress:
        namespace = stress.namespace
        sender, receiver = await namespace.sender("q"), await namespace.receiver("q")
        await sender.send(texts(3))
        locked = [(await receiver.receive(1, WAIT_S))[0] for _ in range(2)]
        stress.azure.detach()
        await until(lambda: not receiver._link.is_open)
        await sender.send([text("3")])
        await receiver.settle_all(locked, Complete())
        rest = await receiver.receive(1, WAIT_S) + await receiver.receive(1, WAIT_S)
        assert [each.message.data for each in rest] == [b"2", b"3"]
        await receiver.settle_all(rest, Complete())
        assert await bodies(stress) == []
        assert len(stress.azure.connections) == 1


async def test_a_session_that_was_idle_is_accepted_anew(certified: Certified) -> None:
    """The receiver says so; it does not attach by itself, as the session may be another's."""
    async with stressed(certified) as stress:
        await (await stress.namespace.sender("s")).send([text("m", "A")])
        session = await stress.namespace.session_receiver("s", "A")
        (found,) = await session.receive(1, WAIT_S)
        stress.azure.detach()
        await until(lambda: not session._link.is_open)
        with pytest.raises(RemoteError) as caught:
            await session.settle(found, Complete())
        assert not caught.value.in_doubt
        with pytest.raises(RemoteLinkEnded, match="not held any more"):
            await session.receive(1, WAIT_S)
        again = await stress.namespace.session_receiver("s", "A")
        (found,) = await again.receive(1, WAIT_S)
        await again.settle(found, Complete())
        assert await bodies(stress, "s") == []


async def test_a_wait_for_messages_outlives_links_and_connections(certified: Certified) -> None:
    """The message that comes afterwards is received, once."""
    async with stressed(certified) as stress:
        sender, receiver = await stress.namespace.sender("q"), await stress.namespace.receiver("q")
        waiting = asyncio.create_task(receiver.receive(5, WAIT_S))
        count = stress.azure.attaches.count(("q", True))
        for end in (stress.azure.detach, stress.azure.cut):
            await until(lambda: stress.queue.waiting)
            end()
            count += 1
            await until(lambda: stress.azure.attaches.count(("q", True)) == count)  # noqa: B023
        await sender.send([text("m")])
        (found,) = await waiting
        assert found.message.data == b"m"


# -- connections that end


async def test_a_send_that_was_accepted_unheard(certified: Certified) -> None:
    """It is in doubt, and there once; one that never came is in doubt, too, and is not there."""
    async with stressed(certified) as stress:
        sender = await stress.namespace.sender("q")
        for kind in ("send", "sent"):
            stress.azure.when(kind, cut)
            with pytest.raises(RemoteConnectionLost) as caught:
                await sender.send([text(kind)])
            assert caught.value.in_doubt
        assert await bodies(stress) == [b"sent"]


async def test_requests_whose_reply_is_lost(certified: Certified) -> None:
    """A request that reads is repeated; one that changes something, done once, is in doubt."""
    async with stressed(certified) as stress:
        management = await stress.namespace.management("q")
        stress.azure.when("reply", cut, operation="com.microsoft:schedule-message")
        with pytest.raises(RemoteConnectionLost) as caught:
            await management.schedule([in_a_day()])
        assert caught.value.in_doubt
        await (await stress.namespace.sender("q")).send([text("m")])
        stress.azure.when("reply", cut, operation="com.microsoft:peek-message")
        assert await bodies(stress) == [b"m"]
        assert stress.azure.is_done


async def test_a_settlement_that_was_carried_out_unheard(certified: Certified) -> None:
    """It is in doubt; done again it says that the lock is lost, and the message is gone."""
    async with stressed(certified) as stress:
        await (await stress.namespace.sender("q")).send([text("m")])
        receiver = await stress.namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        stress.azure.when("settled", cut)
        with pytest.raises(RemoteConnectionLost) as caught:
            await receiver.settle(found, Complete())
        assert caught.value.in_doubt
        with pytest.raises(RemoteError) as again:
            await receiver.settle(found, Complete())
        assert not again.value.in_doubt
        assert await bodies(stress) == []


# -- times that are over


async def test_a_change_that_the_server_says_to_have_timed_out(certified: Certified) -> None:
    """Azure says of its time-out that the change may have been made: it is not made again."""
    async with stressed(certified) as stress:
        sender = await stress.namespace.sender("q")
        stress.azure.when("sent", timed_out)
        with pytest.raises(RemoteTimeout) as caught:
            await sender.send([text("m")])
        assert caught.value.in_doubt
        assert await bodies(stress) == [b"m"]

        management = await stress.namespace.management("q")
        stress.azure.when("request", timed_out, operation="com.microsoft:schedule-message")
        with pytest.raises(RemoteTimeout) as asked:
            await management.schedule([in_a_day()])
        assert asked.value.in_doubt

        receiver = await stress.namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        stress.azure.when("settled", timed_out)
        with pytest.raises(RemoteTimeout) as settled:
            await receiver.settle(found, Complete())
        assert settled.value.in_doubt
        stress.azure.when("request", timed_out, operation="com.microsoft:peek-message")
        assert await bodies(stress) == []
        assert stress.azure.is_done


async def test_a_server_that_never_answers(certified: Certified) -> None:
    """After the caller's time the send is in doubt, and the settlement."""
    async with stressed(certified) as stress:
        sender = await stress.namespace.sender("q")
        stress.azure.when("sent", never)
        with pytest.raises(RemoteTimeout) as caught:
            await sender.send([text("m")], within_s=0.5)
        assert caught.value.in_doubt
        receiver = await stress.namespace.receiver("q")
        (found,) = await receiver.receive(1, WAIT_S)
        stress.azure.when("settled", never)
        with pytest.raises(RemoteTimeout) as settled:
            await receiver.settle(found, Complete(), within_s=0.5)
        assert settled.value.in_doubt
        assert await bodies(stress) == []


# -- tokens


async def test_a_token_that_has_ended_early(certified: Certified) -> None:
    """As when a machine has slept: links end, attaches are refused, and another token is put."""
    async with stressed(certified) as stress:
        namespace = stress.namespace
        sender, receiver = await namespace.sender("q"), await namespace.receiver("q")
        await sender.send([text("a")])
        stress.azure.expire_tokens()
        await until(lambda: not sender._link.is_open)
        await sender.send([text("b")])
        stress.azure.expire_tokens()
        await until(lambda: not receiver._link.is_open)
        found = await receiver.receive(2, WAIT_S)
        assert [each.message.data for each in found] == [b"a", b"b"]
        stress.azure.expire_tokens()
        await namespace.receiver("q")
        stress.azure.expire_tokens()
        await namespace.management("q/$DeadLetterQueue")


async def test_a_namespace_that_takes_no_token(certified: Certified) -> None:
    """It is asked with one more where the token was an earlier one; then the refusal is told."""
    async with stressed(certified) as stress:
        for attaches in (1, 2):
            stress.azure.when("attach", refuse(*stress.azure.expired), address="q", times=attaches)
            with pytest.raises(RemoteUnauthorized, match="ExpiredToken"):
                await stress.namespace.sender("q")
            assert stress.azure.is_done
            await stress.namespace.receiver("q")
        assert stress.waits.seconds == []


class Issuer:
    """Gives tokens as azure-identity does."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_token(self, scope: str) -> Any:
        assert scope == "https://servicebus.azure.net/.default"
        return SimpleNamespace(token=self._text, expires_on=4_000_000_000)


async def test_a_token_of_an_issuer(certified: Certified) -> None:
    """It is put as a jwt, and the tap knows its bearer; another one is refused."""
    async with stressed(certified, EntraToken(Issuer("e.y.J"))) as stress:
        stress.azure.issued = "e.y.J", ROOT
        await (await stress.namespace.sender("q")).send([text("m")])
        assert await bodies(stress) == [b"m"]
        kinds = {each.application_properties["type"] for each in stress.azure.requests[:1]}
        assert kinds == {"jwt"}
    async with stressed(certified, EntraToken(Issuer("another"))) as stress:
        stress.azure.issued = "e.y.J", ROOT
        with pytest.raises(RemoteUnauthorized):
            await stress.namespace.sender("q")


async def test_a_session_and_its_state_when_a_token_ends_or_a_connection_closes(
    certified: Certified,
) -> None:
    """The receiver says that the session is not held; accepted anew, all is there, once."""
    async with stressed(certified) as stress:
        await (await stress.namespace.sender("s")).send([text("m", "A")])
        for end in (
            stress.azure.expire_tokens,
            lambda: stress.azure.close("amqp:connection:forced", "The service is upgraded."),
            stress.azure.cut,
        ):
            session = await stress.namespace.session_receiver("s", "A")
            await session.set_state(b"state")
            (found,) = await session.receive(1, WAIT_S)
            end()
            await until(lambda: not session._link.is_open)  # noqa: B023
            with pytest.raises(RemoteError, match="not held any more") as caught:
                await session.settle(found, Complete())
            assert not caught.value.in_doubt
            with pytest.raises(RemoteError, match="not held any more"):
                await session.receive(1, WAIT_S)
        again = await stress.namespace.session_receiver("s", "A")
        assert await again.state() == b"state"
        (found,) = await again.receive(1, WAIT_S)
        await again.settle(found, Complete())
        assert await bodies(stress, "s") == []


PLAYS = (busy, detach(), detach(BUSY, BUSY_TEXT), close(BUSY, BUSY_TEXT), cut, timed_out)

STEPS = st.lists(
    st.tuples(st.sampled_from(["none", "attach", "send", "sent"]), st.sampled_from(PLAYS)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_each_message_is_there_once_or_in_doubt(steps: list[tuple[Any, Play]]) -> None:
    """Whatever is played: what `send` returned for is there once, what is in doubt at most once,
    and what was refused is not there, in the order of the sends.
    """

    async def work() -> None:
        memory = MemoryNamespace(Queue(name="q"))
        async with (
            gateway(namespace=memory) as (_, port),
            tap(port) as azure,
            remote(azure.port, patience=Waits().patience) as namespace,
        ):
            sender = await namespace.sender("q")
            sure, doubtful = [], []
            for number, (kind, play) in enumerate(steps):
                if kind == "attach":
                    azure.detach()
                is_untrue = kind == "sent" and play is busy  # nobody refuses what was accepted
                if kind != "none" and not is_untrue:
                    azure.when(kind, play)
                try:
                    await sender.send([text(str(number))])
                    sure.append(number)
                except RemoteError as error:
                    if error.in_doubt:
                        doubtful.append(number)
            management = await namespace.management("q")
            found = [int(each.data) for each in await management.peek(1, 250)]
        assert found == sorted(set(found))
        assert set(sure) <= set(found) <= {*sure, *doubtful}

    asyncio.run(work())
