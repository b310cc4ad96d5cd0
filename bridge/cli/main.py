"""The command `busbridge`.

Exit codes: 0 done, 1 failed while running, 2 the options or files are invalid; `policies` has more
(bridge/cli/policies.py).
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

from bridge.cli import policies, sidecar, trust
from bridge.cli.build import BUILD
from bridge.cli.settings import SettingsError, add_options


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="busbridge", description="Azure Service Bus, compiled to RabbitMQ."
    )
    parser.add_argument(
        "--version", action="version", version=f"busbridge {version('busbridge')} ({BUILD})"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser("serve", help="run the bridge until it is told to stop")
    add_options(serving)
    serving.set_defaults(run=_serve)
    sidecar.add_command(commands)
    trust.add_command(commands)
    policies.add_arguments(commands)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except SettingsError as error:
        print(f"busbridge: {error}", file=sys.stderr)
        return 2
    return code


def _serve(arguments: argparse.Namespace) -> int:
    from bridge.cli import serve  # with the packages of the extra `serve`

    return serve.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
