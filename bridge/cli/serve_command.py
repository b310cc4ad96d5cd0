"""The command `busbridge serve`; what it runs is in `serve`, which needs the extra `serve`."""

from __future__ import annotations

import argparse

from bridge.cli.options import add_options
from bridge.commands.parser import add_examples


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("serve", help="run the bridge until it is told to stop")
    add_options(parser)
    add_examples(
        parser,
        "busbridge serve --config Config.json",
        "BUSBRIDGE_RABBITMQ_URL=amqp://user:password@host/vhost busbridge serve --auth rules.json",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from bridge.cli import serve  # with the packages of the extra `serve`

    return serve.run(arguments)
