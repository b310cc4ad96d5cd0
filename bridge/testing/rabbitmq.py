"""Choice of the tests' RabbitMQ: a given broker, this machine's installation, or Docker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.broker.node.installation import Installation
from bridge.testing import container

REMEDY = (
    "There is no RabbitMQ for the tests. Do one of these: install RabbitMQ 4.0 or newer "
    "(4.3 is the fast one); or have Docker run and pip install testcontainers; "
    "or name a RabbitMQ that runs: pytest --busbridge-rabbitmq-url=amqp://user:password@host/vhost"
)


class NoRabbitMQ(Exception):
    """No RabbitMQ is available; the text says what to do."""


@contextmanager
def rabbitmq_flags(
    url: str | None, management_url: str | None, folder: Path
) -> Iterator[tuple[str, ...]]:
    """Provide a RabbitMQ; yield the options of `busbridge serve` for it.

    Args:
        url: a running RabbitMQ; `None` to start this machine's installation, else one in Docker.
        management_url: its management API, if not at the default address.
        folder: the data folder of a private RabbitMQ.

    Raises:
        NoRabbitMQ: no RabbitMQ is available.
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
        except Exception as error:  # testcontainers is missing, or Docker does not answer
            raise NoRabbitMQ(f"{REMEDY} ({type(error).__name__}: {error})") from error
        yield _named(found, management)


def _named(url: str, management_url: str | None) -> tuple[str, ...]:
    management = () if management_url is None else ("--management-url", management_url)
    return ("--rabbitmq-url", url, *management)
