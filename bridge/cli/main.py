"""The command `busbridge`.

Exit codes: 0 done, 1 failed while running, 2 the options or files are invalid; `policies` has more
(bridge/cli/policies.py).
"""

from __future__ import annotations

import argparse
import difflib
import sys
from importlib.metadata import version
from typing import NoReturn

from bridge.cli import auth, policies, sidecar, trust
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
    auth.add_command(commands)
    policies.add_arguments(commands)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(parser, parsed, unknown)
    try:
        code: int = parsed.run(parsed)
    except SettingsError as error:
        print(f"busbridge: {error}", file=sys.stderr)
        return 2
    return code


def _refuse(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, unknown: list[str]
) -> NoReturn:
    """End with the usage of the command that was called, and the most similar options."""
    known: list[str] = []
    while True:
        known += parser._option_string_actions
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parser = action.choices[getattr(parsed, action.dest)]
                break
        else:
            break
    parts = []
    for text in unknown:
        name = text.partition("=")[0]
        similar = difflib.get_close_matches(name, known, 1) if name.startswith("-") else []
        parts.append(f"{name} (did you mean {similar[0]}?)" if similar else name)
    parser.error(f"there is no option {', '.join(parts)}")


def _serve(arguments: argparse.Namespace) -> int:
    from bridge.cli import serve  # with the packages of the extra `serve`

    return serve.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
