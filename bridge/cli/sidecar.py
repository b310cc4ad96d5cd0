"""`busbridge sidecar`: a bridge without a gateway, for applications on RabbitMQ itself.

The sidecar numbers, schedules and forwards messages, keeps sessions and deferred messages, and
answers the library's clients, administration included. Its only port serves health and metrics.
"""

from __future__ import annotations

import argparse
import socket

from bridge.cli.config import read_config
from bridge.cli.listening import listen
from bridge.cli.logs import start_logging
from bridge.cli.options import add_options
from bridge.cli.overdue import Overdue
from bridge.cli.process import run_to_end
from bridge.cli.settings import Settings, read_settings
from bridge.commands.parser import add_examples
from bridge.model import entity as model

OPTIONS = (
    "rabbitmq-url",
    "rabbitmq-ca",
    "rabbitmq-cert",
    "rabbitmq-key",
    "management-url",
    "data-dir",
    "host",
    "admin-port",
    "drain",
    "session-shards",
    "config",
    "tier",
    "log-level",
)
"""The options of `serve` that do not concern its gateway; the variables of the others are
ignored."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "sidecar", help="run a bridge without AMQP 1.0, for applications on RabbitMQ itself"
    )
    add_options(parser, only=OPTIONS)
    add_examples(
        parser,
        "busbridge sidecar --config Config.json",
        "BUSBRIDGE_RABBITMQ_URL=amqp://user:password@host/vhost busbridge sidecar",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; return the exit code."""
    settings = read_settings(arguments, only=OPTIONS)
    start_logging(settings.log_level)
    config = read_config(settings)
    listener = listen(settings.host, settings.admin_port, "admin-port")
    return run_to_end(_work(settings, config, listener))


async def _work(
    settings: Settings, config: model.Namespace | None, listener: socket.socket
) -> None:
    from bridge.cli.bridge import bridge_of  # with the packages of the extra `serve`

    async with bridge_of(settings, config, overdue=Overdue()) as bridge:
        await bridge.start(listener)
        print(await bridge.ready(listener), flush=True)
        await bridge.serve()
