"""The reference of the commands that work on a namespace, made from the parsers of their help."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Set

from bridge.cli.main import COMMANDS, TOOLS, parser_of
from bridge.commands.exit_codes import MEANINGS
from bridge.commands.parser import CommandParser, add_json
from bridge.commands.target import add_target


def leaves(parser: argparse.ArgumentParser) -> Iterator[CommandParser]:
    """Yield the parsers that run something."""
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below and isinstance(parser, CommandParser):
        yield parser
    for action in below:
        for each in action.choices.values():
            yield from leaves(each)


def tools() -> list[CommandParser]:
    """Return the parsers of all commands that work on a namespace."""
    names = [name for name, module in COMMANDS.items() if module.startswith(TOOLS)]
    found = leaves(parser_of(names))
    return [each for each in found if each.prog.split()[1] in names]


def markdown() -> str:
    """Return the reference."""
    parsers = tools()
    codes = "\n".join(f"| {code:d} | {meaning} |" for code, meaning in MEANINGS.items())
    options = _common()._actions
    common = {each.dest for each in options}
    parts = [
        f"| exit code | |\n|---|---|\n{codes}\n",
        "Options of every command (of `profile` and `completion` `--json` alone):\n",
        "| | |\n|---|---|\n" + "\n".join(map(_row, options)) + "\n",
    ]
    parts += (_section(each, common) for each in parsers)
    return "\n".join(parts)


def _common() -> CommandParser:
    """Return a parser with what every command on a namespace has, and nothing else."""
    parser = CommandParser(add_help=False)
    add_json(parser)
    add_target(parser)
    return parser


def _section(parser: CommandParser, common: Set[str]) -> str:
    usage = parser.format_usage().removeprefix("usage: ").strip()
    examples = "\n".join(parser.examples)
    has_target = any(action.dest == "namespace" for action in parser._actions)
    hidden = {"help", *(common if has_target else ("json",))}
    rows = "\n".join(_row(each) for each in parser._actions if each.dest not in hidden)
    options = f"| | |\n|---|---|\n{rows}\n" if rows else ""
    right = parser.right if parser.right == "none" else f"**{parser.right}**"
    return (
        f"### {parser.prog}\n\n{parser.description} Needed right: {right}.\n\n"
        f"```sh\n{examples}\n```\n\n"
        f"`{' '.join(usage.split())}`\n\n{options}"
    )


def _row(action: argparse.Action) -> str:
    shown = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    shown = shown.replace("|", "\\|")  # a table's, in code as well
    name = ", ".join(f"`{each}`" for each in action.option_strings)
    if not name:
        name = f"`{shown}`"
    elif action.nargs != 0:
        name += f" `{shown}`"
    meaning = (action.help or "").replace("|", "\\|").replace("<", "&lt;")
    return f"| {name} | {meaning} |"
