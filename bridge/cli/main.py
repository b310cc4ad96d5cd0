"""The command `busbridge`.

Exit codes: 0 done, 1 failed while running, 2 the options or files are invalid. `policies` has more
(bridge/cli/policies.py), and so have the commands that work on a namespace
(bridge/commands/exit_codes.py).

Only the module of the command that is called is imported; for the list of commands, all are.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, NoReturn

from bridge.commands.errors import CommandError
from bridge.commands.parser import CommandParser

COMMANDS = {
    "serve": "bridge.cli.serve_command",
    "sidecar": "bridge.cli.sidecar",
    "trust": "bridge.cli.trust",
    "auth": "bridge.cli.auth",
    "policies": "bridge.cli.policies",
    "profile": "bridge.commands.profile_commands",
    "ls": "bridge.commands.ls",
    "top": "bridge.commands.top",
    "show": "bridge.commands.show",
    "create": "bridge.commands.create",
    "update": "bridge.commands.update",
    "delete": "bridge.commands.delete",
    "peek": "bridge.commands.peek",
    "send": "bridge.commands.send",
    "receive": "bridge.commands.receive",
    "purge": "bridge.commands.purge",
    "dead-letter": "bridge.commands.dead_letter",
    "export": "bridge.commands.export",
    "import": "bridge.commands.import_lines",
    "undo": "bridge.commands.undo",
    "schedule": "bridge.commands.schedule",
    "deferred": "bridge.commands.deferred",
    "session": "bridge.commands.session",
    "filter": "bridge.commands.filter_test",
    "relay": "bridge.commands.relay",
    "migrate": "bridge.commands.migrate",
    "bench": "bridge.commands.bench",
    "doctor": "bridge.commands.doctor",
    "completion": "bridge.commands.completion",
}
"""Each command's module, in the order of the help; its `register` adds the parser."""

INTERRUPTED = 130
"""The exit code after SIGINT where a command has none of its own, as shells have it."""

TOOLS = "bridge.commands."
"""The package of the commands that need the extra `tools`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = parser_of(_wanted(given))
    parsed, unknown = parser.parse_known_args(given)
    if unknown:
        _refuse(parser, parsed, unknown)
    try:
        code: int = parsed.run(parsed)
    except CommandError as error:
        print(f"busbridge: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:  # at a question, say
        print("busbridge: interrupted.", file=sys.stderr)
        return INTERRUPTED
    return code


def parser_of(names: Collection[str] = tuple(COMMANDS)) -> CommandParser:
    """Return the parser, with these commands whole and the names of the others."""
    parser = CommandParser(prog="busbridge", description="Azure Service Bus, compiled to RabbitMQ.")
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    parser.set_defaults(whole_parser=parser_of)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        if name in names:
            import_module(module).register(commands)
        else:
            commands.add_parser(name)
    return parser


def command_in(arguments: Sequence[str]) -> str:
    """Return the name of the command that is called; "" for none."""
    return next((each for each in arguments if not each.startswith("-")), "")


def _wanted(arguments: Sequence[str]) -> Collection[str]:
    """Return the commands whose parsers a command line needs."""
    if name := command_in(arguments):
        return (name,)
    return () if "--version" in arguments else COMMANDS


class _Version(argparse.Action):
    """Prints the version, which takes a while to find out."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from bridge.cli.build import BUILD

        print(f"busbridge {version('busbridge')} ({BUILD})")
        parser.exit()


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


if __name__ == "__main__":
    sys.exit(main())
