"""Ordinary use: clients that settle in every way, side by side, and each message in one place."""

from __future__ import annotations

import pytest

from tests.acceptance.driver import dotnet_program, go_program, java_program, node_program
from tests.accounting.mix import Mix, other_client, python_client
from tests.fixtures.bridge import Bridge

LANES = ("azure", "azure-aio", "pika", "aio-pika")


def javascript() -> list[str]:
    """Return the command of the JavaScript program, with the corrected copy of rhea's sessions."""
    node, program = node_program("accounting.mjs")
    return [node, "--require", program.replace("accounting.mjs", "corrected.cjs"), program]


def java() -> list[str]:
    """Return the command of the Java program."""
    return java_program("Accounting")


def go() -> list[str]:
    """Return the command of the Go program."""
    return go_program("accounting", "./accounting")


def dotnet() -> list[str]:
    """Return the command of the C# program."""
    return dotnet_program("accounting")


EVERYBODY = (
    *(python_client(lane, "batch", "plain") for lane in LANES),
    python_client("azure", "batch", "unique"),
    python_client("azure", "sessions", "sessions"),
    python_client("pika", "sessions", "sessions"),
    python_client("azure", "delete", "taken"),
    other_client(javascript, "processor", "plain"),
    other_client(javascript, "batch", "unique"),
    other_client(javascript, "sessions", "sessions"),
    other_client(java, "processor", "plain"),
    other_client(java, "sessions", "sessions"),
    other_client(java, "batch", "target"),
    other_client(go, "batch", "target"),
    other_client(go, "sessions", "sessions"),
    other_client(dotnet, "prefetching", "plain"),
    other_client(dotnet, "sessions", "sessions"),
    other_client(dotnet, "batch", "target"),
    other_client(dotnet, "prefetching", "events/subscriptions/all"),
    other_client(javascript, "processor", "events/subscriptions/all"),
)
"""Every client, several on each place."""


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(10, 14))
def test_everybody_beside_each_other_for_an_hour(bridge: Bridge, seed: int) -> None:
    """25,000 messages a turn, every client, some cut off now and then."""
    cut = (
        python_client("azure", "batch", "unique"),
        other_client(javascript, "processor", "target"),
        other_client(java, "processor", "events/subscriptions/all"),
        other_client(dotnet, "processor", "unique"),
    )
    print(Mix(bridge, EVERYBODY, seed=seed, cut=cut, senders=4).run(25_000))


@pytest.mark.timeout(600)
def test_a_few_clients_beside_each_other(bridge: Bridge) -> None:
    """Each kind of client, on a queue and on one with sessions; one of them is cut off."""
    clients = [
        python_client("azure", "batch", "plain"),
        python_client("pika", "batch", "plain"),
        other_client(javascript, "processor", "plain"),
        python_client("azure", "sessions", "sessions"),
        python_client("aio-pika", "sessions", "sessions"),
    ]
    cut = [python_client("azure-aio", "batch", "plain")]
    print(Mix(bridge, clients, seed=5, cut=cut).run(300))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_clients_that_are_cut_off(bridge: Bridge) -> None:
    """Their connections end every few seconds; what was not answered may be done or not."""
    cut = [
        python_client("azure", "batch", "plain"),
        python_client("azure-aio", "batch", "plain"),
        other_client(javascript, "processor", "plain"),
        python_client("azure", "sessions", "sessions"),
    ]
    print(Mix(bridge, (), seed=4, cut=cut).run(600))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_javascript_clients_beside_each_other(bridge: Bridge) -> None:
    """Processors whose handlers throw, batches and sessions."""
    clients = [
        other_client(javascript, "processor", "plain"),
        other_client(javascript, "batch", "plain"),
        other_client(javascript, "sessions", "sessions"),
        other_client(javascript, "processor", "target"),
        other_client(javascript, "processor", "events/subscriptions/all"),
        other_client(javascript, "batch", "unique"),
    ]
    print(Mix(bridge, clients, seed=1).run(1_000))


@pytest.mark.sdks
@pytest.mark.timeout(600)
def test_java_and_go_clients_beside_each_other(bridge: Bridge) -> None:
    """Processors whose handlers throw, batches and sessions, two SDKs on each place."""
    clients = [
        other_client(java, "processor", "plain"),
        other_client(go, "batch", "plain"),
        other_client(java, "sessions", "sessions"),
        other_client(go, "sessions", "sessions"),
        other_client(java, "batch", "target"),
        other_client(go, "batch", "target"),
        other_client(java, "processor", "events/subscriptions/all"),
        other_client(go, "batch", "unique"),
    ]
    print(Mix(bridge, clients, seed=2).run(2_000))


@pytest.mark.sdks
@pytest.mark.timeout(600)
def test_dotnet_clients_beside_each_other(bridge: Bridge) -> None:
    """Processors whose handlers throw, with and without prefetch, batches and sessions."""
    clients = [
        other_client(dotnet, "processor", "plain"),
        other_client(dotnet, "prefetching", "plain"),
        other_client(dotnet, "sessions", "sessions"),
        other_client(dotnet, "batch", "target"),
        other_client(dotnet, "prefetching", "target"),
        other_client(dotnet, "prefetching", "events/subscriptions/all"),
        other_client(dotnet, "processor", "unique"),
    ]
    print(Mix(bridge, clients, seed=3).run(2_000))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_python_clients_beside_each_other(bridge: Bridge) -> None:
    """The SDK in both styles and the library in both lanes, on every kind of place."""
    clients = [
        *(python_client(lane, "batch", "plain") for lane in LANES),
        *(python_client(lane, "sessions", "sessions") for lane in ("azure", "pika", "aio-pika")),
        python_client("azure", "batch", "unique"),
        python_client("azure-aio", "batch", "target"),
        python_client("pika", "batch", "target"),
        python_client("azure", "batch", "events/subscriptions/all"),
        python_client("aio-pika", "batch", "events/subscriptions/all"),
        python_client("azure", "delete", "taken"),
        python_client("pika", "delete", "taken"),
    ]
    print(Mix(bridge, clients).run(1_500))
