"""Which RabbitMQ a test's bridge works with: a given one, this machine's, or one in Docker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.broker.node.installation import Installation
from bridge.testing import container

REMEDY = (
    "There is no RabbitMQ for the tests. Do one of these: install RabbitMQ 3.10 or newer "
    "(Debian: apt-get install rabbitmq-server); or have Docker run and pip install testcontainers; "
    "or name a RabbitMQ that runs: pytest --busbridge-rabbitmq-url=amqp://user:password@host/vhost"
)


class NoRabbitMQ(Exception):
    """No RabbitMQ can be had; the text says what to do."""


@contextmanager
def rabbitmq_flags(
    url: str | None, management_url: str | None, folder: Path
) -> Iterator[tuple[str, ...]]:
    """Have a RabbitMQ; yield the options of `busbridge serve` that name it.

    Args:
        url: one that runs; `None`: this machine's installation is started, else one in Docker.
        management_url: its management API, if that is not where it usually is.
        folder: where the data of a private one lies.

    Raises:
        NoRabbitMQ: there is none.
    """
    if url is None and Installation.find() is not None:
        yield ("--data-dir", str(folder))
        return
    if url is not None:
        yield _named(url, management_url)
        return
    with ExitStack() as parts:
        try:
            found, management = parts.enter_context(container.rabbitmq())
        except Exception as error:  # testcontainers is not there, or Docker does not answer
            raise NoRabbitMQ(f"{REMEDY} ({type(error).__name__}: {error})") from error
        yield _named(found, management)


def _named(url: str, management_url: str | None) -> tuple[str, ...]:
    management = () if management_url is None else ("--management-url", management_url)
    return ("--rabbitmq-url", url, *management)
