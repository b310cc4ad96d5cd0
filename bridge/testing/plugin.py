"""The pytest plugin `busbridge`: a RabbitMQ and a bridge for the run, fresh entities for each test.

The plugin is active when the package is installed; nothing is started before a test asks for a
fixture. With pytest-xdist each worker has a RabbitMQ and a bridge of its own. docs/library.md has
an example.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bridge.client.management import ServiceBusAdministrationClient
    from bridge.testing.process import Bridge


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for a running RabbitMQ."""
    group = parser.getgroup("busbridge")
    group.addoption(
        "--busbridge-rabbitmq-url",
        metavar="URL",
        help="a RabbitMQ that runs, with its virtual host, instead of a private one",
    )
    group.addoption(
        "--busbridge-management-url",
        metavar="URL",
        help="its management API; by default the same host, port 15672",
    )


@pytest.fixture(scope="session")
def busbridge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bridge]:
    """A bridge shared by the run, with a RabbitMQ behind it; both end with the run."""
    from bridge.testing.process import Bridge
    from bridge.testing.rabbitmq import NoRabbitMQ, rabbitmq_flags

    given = request.config.getoption("busbridge_rabbitmq_url")
    management = request.config.getoption("busbridge_management_url")
    folder = tmp_path_factory.mktemp("busbridge")
    with ExitStack() as parts:
        try:
            flags = parts.enter_context(rabbitmq_flags(given, management, folder))
        except NoRabbitMQ as error:
            pytest.fail(str(error), pytrace=False)
        started = Bridge(flags, amqp_url=flags[1] if flags[0] == "--rabbitmq-url" else "")
        parts.callback(started.stop)
        try:
            started.start()
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)
        yield started


@pytest.fixture(scope="session")
def busbridge_url(busbridge: Bridge) -> str:
    """RabbitMQ's AMQP URL, for `busbridge.client` and native clients."""
    return busbridge.amqp_url


@pytest.fixture(scope="session")
def busbridge_connection_string(busbridge: Bridge) -> str:
    """The connection string for an Azure SDK."""
    return busbridge.connection_string


@pytest.fixture(scope="session")
def busbridge_administration(busbridge_url: str) -> Iterator[ServiceBusAdministrationClient]:
    """The administration client of the library."""
    from bridge.client.management import ServiceBusAdministrationClient

    with ServiceBusAdministrationClient(busbridge_url) as client:
        yield client


@pytest.fixture
def busbridge_queue(
    busbridge_administration: ServiceBusAdministrationClient,
) -> Iterator[Callable[..., str]]:
    """Make queues: `busbridge_queue(lock_duration=...)` returns the name of a new queue.

    The function takes the arguments of `create_queue`. The queues are deleted at the end of the
    test.
    """
    from bridge.client.management import ResourceNotFoundError

    made: list[str] = []

    def make(**properties: Any) -> str:
        name = f"queue-{uuid.uuid4().hex[:12]}"
        busbridge_administration.create_queue(name, **properties)
        made.append(name)
        return name

    yield make
    for name in made:
        with suppress(ResourceNotFoundError):
            busbridge_administration.delete_queue(name)


@pytest.fixture
def busbridge_topic(
    busbridge_administration: ServiceBusAdministrationClient,
) -> Iterator[Callable[..., str]]:
    """Make topics: `busbridge_topic("all", "red")` returns the name of a new topic.

    The function takes the names of the topic's subscriptions, and the arguments of `create_topic`.
    The topics are deleted at the end of the test.
    """
    from bridge.client.management import ResourceNotFoundError

    made: list[str] = []

    def make(*subscriptions: str, **properties: Any) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        busbridge_administration.create_topic(name, **properties)
        made.append(name)
        for subscription in subscriptions:
            busbridge_administration.create_subscription(name, subscription)
        return name

    yield make
    for name in made:
        with suppress(ResourceNotFoundError):
            busbridge_administration.delete_topic(name)
