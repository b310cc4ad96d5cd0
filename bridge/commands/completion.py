"""`busbridge completion`: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import NO_RIGHT, Commands, add_command

SHELLS = ("bash", "zsh", "fish")


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "completion", "print the script that completes commands in a shell",
        run=run, right=NO_RIGHT,
        examples=(
            "busbridge completion bash > ~/.local/share/bash-completion/completions/busbridge",
            "busbridge completion fish > ~/.config/fish/completions/busbridge.fish",
        ),
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS, help="the shell")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Print the script for the whole command line."""
    import shtab

    whole: Callable[[], argparse.ArgumentParser] = arguments.whole_parser
    parser = whole()
    for action in _actions(parser):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks for it
    output.text(shtab.complete(parser, shell=arguments.shell).rstrip("\n"))
    return ExitCode.DONE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all arguments of a parser and of those of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
