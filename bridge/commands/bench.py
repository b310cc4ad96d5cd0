"""`busbridge bench`: how fast messages go, on queues of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bridge.commands.bench_load import WORKS, Bench, BenchLoad
from bridge.commands.doctor_rabbitmq import URL_VARIABLE, endpoint_in
from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.own_queues import own_queues
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.target import NamespaceLogin, add_target, target_of
from bridge.commands.watching import unless
from bridge.operations.measurement import MessageAccount, RateFigure, RoundLimit

if TYPE_CHECKING:
    from bridge.broker.connection.endpoint import Endpoint

PREFIX: Final = "busbridge-bench-"
"""What the names of all queues begin with that this command makes."""

MESSAGES: Final = 5_000
SECONDS: Final = 10.0
ROUNDS: Final = 3
SIZE_BYTES: Final = 1_024
IN_FLIGHT: Final = 100
BATCH: Final = 100

IN_FLIGHT_MAX: Final = 65_535
"""The most that RabbitMQ takes as a prefetch count."""

WARM_PART: Final = 10
"""A warm-up has this part of the messages of a round."""

LOCK: Final = "PT1M"

COLUMNS: Final = ("work", "unit", "median", "lowest", "highest", "plain_pika", "ratio")

RATIO_DECIMALS: Final = 2


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "bench",
        "measure how fast messages are sent, received, scheduled, and taken from sessions",
        run=run,
        right="Manage on the namespace",
        examples=(
            "busbridge bench",
            "busbridge bench --work send --work receive --rabbitmq-url amqp://localhost/ --yes",
        ),
    )
    parser.add_argument(
        "--work", action="append", dest="works", choices=tuple(WORKS), metavar="WORK",
        help="; ".join(f"{name}: {meaning}" for name, meaning in WORKS.items())
        + "; may be given again (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, metavar="N",
        help=f"messages of a round (default: {MESSAGES:,})",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="N",
        help=f"a round ends after N seconds at the latest (default: {SECONDS:g})",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N",
        help=f"rounds of each work, behind one that warms up (default: {ROUNDS})",
    )  # fmt: skip
    parser.add_argument(
        "--size", type=int, default=SIZE_BYTES, metavar="BYTES",
        help=f"bytes of a message's body (default: {SIZE_BYTES:,})",
    )  # fmt: skip
    parser.add_argument(
        "--in-flight", type=int, default=IN_FLIGHT, metavar="N",
        help="messages that are unconfirmed at a time, or received ahead "
        f"(default: {IN_FLIGHT})",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, default=BATCH, metavar="N",
        help=f"messages of a batch, if they fit (default: {BATCH})",
    )  # fmt: skip
    parser.add_argument(
        "--rabbitmq-url", metavar="URL",
        help="measure plain pika on this RabbitMQ, too, in turns: a quorum queue of its own, with "
        f"publisher confirms; in place of an option, {URL_VARIABLE} may have it, which nobody else "
        "can read",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: which works, and how long a round is."""

    works: tuple[str, ...]
    messages: int
    seconds: float
    rounds: int
    load: BenchLoad

    @property
    def messages_max(self) -> int:
        """The most messages that are sent to one side."""
        return len(self.works) * (self.rounds * self.messages + self.warm_up)

    @property
    def warm_up(self) -> int:
        """The messages of the round that warms up."""
        return max(self.messages // WARM_PART, 1)


@dataclass(slots=True)
class Found:
    """What was measured: figures, and the faults of the account."""

    figures: list[RateFigure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Ask, make the queues, measure, delete the queues; FAILED if a message was missed."""
    from bridge.broker.errors import BrokerError
    from bridge.remote.administration import RemoteAdministration

    plan = _plan(arguments)
    endpoint = _endpoint(arguments)
    target = target_of(arguments)
    name = f"{PREFIX}{secrets.token_hex(4)}"
    queues = {name: {"LockDuration": LOCK}}
    if "sessions" in plan.works:
        queues[f"{name}-sessions"] = {"LockDuration": LOCK, "RequiresSession": "true"}
    _confirm(output, target, plan, queues, endpoint)
    found, is_whole = Found(), False
    try:
        with output.interruption.deferred() as asked:
            async with (
                RemoteAdministration(target.address, target.credential) as administration,
                own_queues(administration, queues, output) as own,
                _benches(target, endpoint, name, plan.load, output) as benches,
            ):
                is_whole = await _measure(plan, benches, found, output, asked)
    except BrokerError as error:
        raise CommandError(f"RabbitMQ: {error}") from error
    finally:
        if output.is_table and found.figures:
            output.table([_row(each, plan) for each in found.figures], COLUMNS)
    for each in found.faults:
        output.say(f"MISSED: {each}")
    if not is_whole:
        output.say("Stopped. The same command measures all again, on other queues.")
        return ExitCode.STOPPED
    return ExitCode.FAILED if found.faults or not own.are_gone else ExitCode.DONE


def _plan(arguments: argparse.Namespace) -> Plan:
    numbers = {
        "--messages": arguments.messages,
        "--rounds": arguments.rounds,
        "--in-flight": arguments.in_flight,
        "--batch": arguments.batch,
    }
    for option, number in numbers.items():
        if number <= 0:
            raise WrongInput(f"{option} is above 0.")
    if arguments.size < 0:
        raise WrongInput("--size is not below 0.")
    if arguments.in_flight > IN_FLIGHT_MAX:
        raise WrongInput(f"--in-flight is {IN_FLIGHT_MAX:,} at most.")
    works = tuple(each for each in WORKS if each in (arguments.works or WORKS))
    load = BenchLoad(arguments.size, arguments.in_flight, arguments.batch)
    return Plan(works, arguments.messages, arguments.seconds, arguments.rounds, load)


def _endpoint(arguments: argparse.Namespace) -> Endpoint | None:
    """Return the RabbitMQ of plain pika; `None`: there is none to compare with."""
    if arguments.rabbitmq_url is not None:
        return endpoint_in(arguments.rabbitmq_url, os.environ, "--rabbitmq-url")
    url = os.environ.get(URL_VARIABLE)
    return endpoint_in(url, os.environ, URL_VARIABLE) if url else None


def _confirm(
    output: Output,
    target: NamespaceLogin,
    plan: Plan,
    queues: Mapping[str, object],
    endpoint: Endpoint | None,
) -> None:
    """Say what it costs, and ask."""
    if target.address.is_azure:
        output.say(
            f"{target.name!r} is Azure's: every send, receive and settlement is an operation that "
            "it bills, and where it throttles (server-busy) the figures are those of its tier, not "
            "of this machine or of busbridge."
        )
    names = " and ".join(map(repr, queues))
    beside = f", and {peer_queue(next(iter(queues)))!r} in {endpoint}" if endpoint else ""
    output.confirm(
        f"Make {names} in {target.name!r}{beside}, send up to {plan.messages_max:,} messages of "
        f"{plan.load.size_bytes:,} bytes{' to each side' if endpoint else ''}, and delete what was "
        "made?"
    )


def peer_queue(name: str) -> str:
    """Return the name of the queue of plain pika, beside that of the namespace."""
    return f"{name}-pika"


@asynccontextmanager
async def _benches(
    target: NamespaceLogin, endpoint: Endpoint | None, name: str, load: BenchLoad, output: Output
) -> AsyncIterator[Sequence[Bench]]:
    """Yield who does the work: the namespace, and plain pika where there is a RabbitMQ for it."""
    from bridge.commands.bench_works import NamespaceBench
    from bridge.remote.namespace import RemoteNamespace

    async with RemoteNamespace(target.address, target.credential) as namespace:
        ours = NamespaceBench(target.name, namespace, name, f"{name}-sessions", load)
        if endpoint is None:
            yield [ours]
            return
        async with _pika(endpoint, peer_queue(name), load, output) as peer:
            yield [ours, peer]


@asynccontextmanager
async def _pika(
    endpoint: Endpoint, queue: str, load: BenchLoad, output: Output
) -> AsyncIterator[Bench]:
    """Yield plain pika with a queue of its own, which is deleted at the end."""
    from bridge.broker.errors import BrokerError
    from bridge.broker.plain_pika import UNUSED_MS, PlainPika
    from bridge.commands.bench_peer import PikaBench

    pika = PlainPika(endpoint, queue)
    try:
        await pika.open()
        yield PikaBench(pika, load)
    finally:
        with output.interruption.deferred():  # another signal does not leave the queue there
            try:
                await pika.close()
            except BrokerError as error:
                output.say(
                    f"The queue {queue!r} in {endpoint} may be there still ({error}); RabbitMQ "
                    f"deletes it when nobody has used it for {UNUSED_MS // 3_600_000} hours."
                )


async def _measure(
    plan: Plan, benches: Sequence[Bench], found: Found, output: Output, asked: asyncio.Event
) -> bool:
    """Do all rounds, the sides in turns; return whether nobody has stopped it."""
    sides_of = {work: [each for each in benches if work in each.works] for work in plan.works}
    total = (plan.rounds + 1) * sum(map(len, sides_of.values()))
    with output.progress(total, "measuring") as progress:
        for work, sides in sides_of.items():
            rates: list[dict[str, list[float]]] = [{} for _ in sides]
            for number in range(plan.rounds + 1):
                for side, of_side in zip(sides, rates, strict=True):
                    limit = RoundLimit(
                        plan.messages if number else plan.warm_up, plan.seconds, time.perf_counter
                    )
                    account = MessageAccount(secrets.token_hex(4))
                    ended = await unless(asked, side.round(work, limit, account))
                    if ended is None:
                        return False
                    measured = ended.result()
                    found.faults += (f"{side.name}, {work}: {each}" for each in account.faults())
                    if number:  # the first one warms up
                        for name, rate in measured.items():
                            of_side.setdefault(name, []).append(rate)
                    progress.advance()
            ours, *others = rates
            for name, of_round in ours.items():
                peers = others[0].get(name, []) if others else []
                figure = RateFigure(name, tuple(of_round), tuple(peers))
                found.figures.append(figure)
                if not output.is_table:
                    output.record(_row(figure, plan))
    return True


def _row(figure: RateFigure, plan: Plan) -> dict[str, object]:
    """Return a figure, in messages a second, with what it was measured with."""
    ratio, peers = figure.ratio, figure.peer_median
    return {
        "work": figure.work,
        "unit": "messages/s",
        "median": _rounded(figure.median),
        "lowest": _rounded(min(figure.rates)),
        "highest": _rounded(max(figure.rates)),
        "rounds": [_rounded(each) for each in figure.rates],
        "plain_pika": None if peers is None else _rounded(peers),
        "plain_pika_rounds": [_rounded(each) for each in figure.peers],
        "ratio": None if ratio is None else round(ratio, RATIO_DECIMALS),
        "messages": plan.messages,
        "size_bytes": plan.load.size_bytes,
        "in_flight": plan.load.in_flight,
        "batch": plan.load.batch,
    }


def _rounded(rate: float) -> float:
    return round(rate, 1)
