"""`busbridge relay`: messages from one namespace to another, as a file says."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bridge.commands import relay_check, relay_init, relay_run
from bridge.commands.parser import Commands

VERBS = relay_check, relay_init, relay_run
"""Modules with the group's commands."""

RUN = "run"
"""The command that is meant where none is named: `busbridge relay FILE`."""


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    relay = commands.add_parser(
        "relay", help="move messages between namespaces, as the routes of a file say"
    )
    verbs = relay.add_subparsers(dest="verb", required=True, metavar="FILE|VERB", action=_Verbs)
    for each in VERBS:
        each.register(verbs)


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Takes the name of a file in place of a command: `RUN` is meant, if there is one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.choices = self._name_parser_map = _Names()

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        first = values[0]
        similar = get_close_matches(first, [each for each in self.choices if each != RUN], 1)
        if self.choices.get(first) is None and similar and not Path(first).exists():
            parser.error(f"there is no file and no command {first!r} (did you mean {similar[0]}?)")
        super().__call__(parser, namespace, _named(self.choices, values), option_string)


class _Names(dict[str, argparse.ArgumentParser]):
    """Parsers by name; a name that is none stands for `RUN`."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(RUN)


def _named(choices: Any, values: Sequence[str]) -> Sequence[str]:
    return [RUN, *values] if choices.get(values[0]) is None else values
