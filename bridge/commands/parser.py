"""Parsers of commands: each help ends with two examples, the needed right and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import MEANINGS

if TYPE_CHECKING:
    from bridge.commands.output import Output

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What `add_subparsers` returns, and `register` takes."""

Run = Callable[[argparse.Namespace, "Output"], Awaitable[int]]
"""A command: options and output -> exit code."""

NO_RIGHT = "none"
"""The right of a command that asks no namespace for anything."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command.

    Attributes:
        examples: command lines, each of which does something as it stands.
        right: the claim of a shared access rule that the command needs: Listen, Send or Manage,
            with the entity that it is needed on; "" for a command that works on no namespace.
    """

    examples: tuple[str, ...] = ()
    right: str = ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the most similar command, kind or choice beside the wrong one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            similar = get_close_matches(str(value), map(str, action.choices or ()), 1)
            if not similar:
                raise
            text = f"{error.message} (did you mean {similar[0]}?)"
            raise argparse.ArgumentError(action, text) from None

    def check_numbers(self, arguments: argparse.Namespace) -> None:
        """Check the options with a number of seconds, or of messages a second.

        Raises:
            WrongInput: one is not above 0, or is not finite.
        """
        for action in self._actions:
            value = getattr(arguments, action.dest, None)
            if action.type is float and value is not None and not 0 < value < inf:
                raise WrongInput(f"{action.option_strings[0]} is above 0, and finite.")

    def format_usage(self) -> str:
        """Return the usage; that of a command with examples does not list its options."""
        if self.right:
            places = [_place(each) for each in self._actions if not each.option_strings]
            self.usage = " ".join(["%(prog)s", "[options]", *places])
        return super().format_usage()

    def format_help(self) -> str:
        """Return the help with examples, right and exit codes at its end."""
        self.format_usage()
        parts = [super().format_help()]
        if self.examples:
            parts.append("examples:\n" + "".join(f"  {line}\n" for line in self.examples))
        if self.right:
            parts.append(f"needed right: {self.right}\n")
            codes = (f"  {code:d}  {meaning}\n" for code, meaning in MEANINGS.items())
            parts.append("exit codes:\n" + "".join(codes))
        return "\n".join(parts)


def _place(action: argparse.Action) -> str:
    """Return an argument as a usage shows it."""
    name = str(action.metavar or "|".join(action.choices or (action.dest,)))
    return {"+": f"{name} ...", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def add_command(
    commands: Commands,
    name: str,
    meaning: str,
    *,
    run: Run,
    right: str,
    examples: tuple[str, str],
) -> CommandParser:
    """Add a command's parser, and have `run` called for it.

    Args:
        meaning: what the command does, in the words of a list of commands.
        right: the claim that is needed, such as "Listen on the entity"; `NO_RIGHT`.
        examples: two command lines.
    """
    parser = commands.add_parser(
        name, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}."
    )
    assert isinstance(parser, CommandParser)
    parser.examples, parser.right = examples, right

    async def checked(arguments: argparse.Namespace, output: Output) -> int:
        parser.check_numbers(arguments)
        return await run(arguments, output)

    def start(arguments: argparse.Namespace) -> int:
        from bridge.commands.running import run_command  # asyncio: not for a help

        return run_command(checked, arguments, right)

    parser.set_defaults(run=start)
    add_json(parser)
    return parser


def add_examples(parser: argparse.ArgumentParser, *examples: str) -> None:
    """Add examples to the help of a command that works on no namespace."""
    assert isinstance(parser, CommandParser)
    parser.examples = examples


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for JSON lines at a terminal."""
    parser.add_argument(
        "--json", action="store_true", help="JSON lines, as in a pipe (default: tables)"
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add the option that answers the question of a destructive command."""
    parser.add_argument(
        "--yes", "-y", action="store_true", help="do not ask; without a terminal it is needed"
    )
