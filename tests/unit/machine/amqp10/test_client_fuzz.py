"""A server's bytes, spoilt: the client ends with an error that has a name, or goes on."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from bridge.machine.amqp10.client import CLIENT_LIMITS, ClientEndpoint
from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.endpoint import ConnectionState
from bridge.machine.amqp10.events import Closed, Event, LinkDetached, LinkOpened, MessageArrived
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from tests.fixtures.examples import examples
from tests.soak.fuzz_gateway import SEED, Step, message, mutate, portions
from tests.unit.machine.amqp10.pair import client_endpoint

FIRST = 0x40000000


def conversation(generator: random.Random) -> list[Step]:
    """Return what a server would say, in order."""
    error = Error("com.microsoft:message-lock-lost", "lost", {})
    steps = [
        Step(Open("server", max_frame_size=generator.choice([512, 65_536]), idle_time_out=9_000)),
        Step(Begin(0, FIRST, 100, 100)),
        Step(Attach("in", 0, False, 0, 1, Source("q"), Target("in"), initial_delivery_count=0)),
        Step(Attach("out", 1, True, 0, 0, Source("out"), Target("q"), max_message_size=9_000)),
        Step(Flow(0, 100, FIRST, 100, 1, 0, 50)),
    ]
    traffic = [
        lambda at: Step(Transfer(0, FIRST + at, at.to_bytes(16, "big"), 0), message(b"body")),
        lambda at: Step(Transfer(0, FIRST + at, b"", 0, True), message(b"body" * 50)),
        lambda at: Step(Transfer(0, FIRST + at, b"3", 0, False, True), message(b"z")[:4]),
        lambda at: Step(Flow(at, 100, FIRST + at, 100, 1, at, generator.randrange(60))),
        lambda at: Step(Flow(at, 100, FIRST + at, 100, 0, at, 0, None, True, True)),
        lambda at: Step(Flow(at, 100, FIRST + at, 100, echo=True)),
        lambda at: Step(Disposition(True, generator.randrange(6), None, True, Accepted())),
        lambda at: Step(Disposition(True, 0, 3, True, Rejected(error))),
        lambda at: Step(Disposition(True, 1, 2, False, Released())),
        lambda at: Step(Disposition(False, FIRST + generator.randrange(6), None, True, Accepted())),
        lambda at: Step(Disposition(False, FIRST, FIRST + 3, True, Modified(True))),
        lambda at: Step(Disposition(False, FIRST + 1, None, True, Rejected(error))),
        lambda at: Step(Detach(0, True, Error("amqp:link:detach-forced", "idle"))),
    ]
    for number in range(generator.randrange(2, 30)):
        step = generator.choice(traffic)(number)
        steps.append(step)
        if getattr(step.performative, "more", False):
            rest = Transfer(0, None, None, None, aborted=generator.random() < 0.3)
            steps.append(Step(rest, message(b"z")[4:]))
    ending = [Step(Detach(1, True)), Step(End(Error("amqp:internal-error"))), Step(Close())]
    return steps + ending[generator.randrange(4) :]


class Client:
    """A client that uses all of its machine, whatever it is told."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        limits = replace(CLIENT_LIMITS, frame_bytes_max=65_536, held_bytes_max=1_000_000)
        self.endpoint: ClientEndpoint = client_endpoint(limits=limits)
        self.session: ClientSession | None = None
        self.ended: Counter[str] = Counter()
        self.closed: list[Closed] = []
        self.opened: set[str] = set()

    def receive(self, data: bytes) -> None:
        """Take bytes, and act on each event."""
        for event in self.endpoint.receive(data, 2_000):
            self.on_event(event)
        if self.endpoint.state is ConnectionState.OPEN and self.session is None:
            self.session = self.endpoint.begin()
            terms = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
            self.session.attach_receiver("in", Source("q"), Target("in"), **terms)
            self.session.attach_sender("out", Source("out"), Target("q"), **terms)
        self.endpoint.take_output()

    def on_event(self, event: Event) -> None:
        """Settle, send and grant."""
        match event:
            case LinkOpened(link):
                self.opened.add(link.name)
                if isinstance(link, ClientIncomingLink):
                    link.grant(20)
            case MessageArrived(link, delivery_id, is_settled=False):
                assert isinstance(link, ClientIncomingLink)
                outcome = self.generator.choice([Accepted(), Released()])
                link.tell_outcome(delivery_id, outcome, is_settled=self.generator.random() < 0.3)
                if self.generator.random() < 0.2:
                    link.drain()
            case LinkDetached(link):
                self.ended[link.name] += 1
            case Closed():
                self.closed.append(event)
        for link in self.session.links.values() if self.session is not None else ():
            if isinstance(link, ClientOutgoingLink) and link.is_open and link.credit:
                link.send(b"t", b"x" * 700, 0, is_settled=False)


def converse(seed: int) -> tuple[Client, int]:
    """Hold one conversation; return the client and the number of spoilt frames."""
    generator = random.Random(seed)
    client, mutated = Client(generator), 0
    sasl = ProtocolHeader.SASL.value + encode_frame(0, SaslMechanisms(("ANONYMOUS",)), frame_type=1)
    sasl += encode_frame(0, SaslOutcome(0), frame_type=1)
    opening = bytearray(sasl + ProtocolHeader.AMQP.value)
    if generator.random() < 0.1:
        opening[generator.randrange(len(opening))] = generator.randrange(256)
    client.receive(bytes(opening))
    early, late = generator.choice([(0.0, 0.5), (0.02, 0.3), (0.3, 0.6)])
    for position, step in enumerate(conversation(generator)):
        is_mutated = generator.random() < (early if position < 5 else late)
        mutated += is_mutated
        raw = mutate(generator, step) if is_mutated else step.encode()
        for portion in portions(generator, raw):
            client.receive(portion)
    return client, mutated


def fuzz(frames: int, seed: int) -> tuple[int, int, Counter[str]]:
    """Hold conversations until so many frames were spoilt.

    Returns how many there were, how many survived, and how often each condition ended one.

    Raises:
        AssertionError: names the seed of a conversation that raised, or ended without a name.
    """
    conversations = survived = spoilt = 0
    conditions: Counter[str] = Counter()
    while spoilt < frames:
        at = seed + conversations
        conversations += 1
        try:
            client, mutated = converse(at)
            survived += not any(each.is_fault for each in client.closed)
            check(client)
        except (Exception, AssertionError) as error:
            raise AssertionError(f"the conversation of seed {at}: {error!r}") from error
        spoilt += mutated
        conditions.update(str(each.error.condition) for each in client.closed if each.error)
    return conversations, survived, conditions


def check(client: Client) -> None:
    """Check how a client has come out of a conversation.

    A connection that is not open is over or waits for the server, whose silence ends it; each link
    ends once; nothing is kept of what has ended.
    """
    endpoint = client.endpoint
    assert len(client.closed) <= 1
    assert all(each.error is not None for each in client.closed if each.is_fault)
    now_ms = endpoint.deadline_ms
    while endpoint.state is not ConnectionState.FINISHED and not client.closed:
        for event in endpoint.tick(now_ms):
            client.on_event(event)
        endpoint.take_output()
        now_ms = max(endpoint.deadline_ms, now_ms + 1)
        assert now_ms < 1_000_000, endpoint
    assert client.opened <= set(client.ended)
    assert set(client.ended.values()) <= {1}
    assert endpoint.link_count == 0
    assert endpoint.held_bytes == 0


def test_mutated_frames_of_a_server() -> None:
    """They raise nothing; what ends has a condition, and many conversations go on."""
    conversations, survived, conditions = fuzz(examples(20_000), SEED)

    assert survived > conversations / 20
    assert len(conditions) >= 5
    assert all(":" in each for each in conditions)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_million_mutated_frames_of_a_server() -> None:
    """Neither does a million."""
    fuzz(1_000_000, SEED + 1_000_000)
