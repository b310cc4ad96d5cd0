"""What the documentation shows of the code.

    python -m tests.documentation docs [--check]

writes the mapping table and the worked migration between their marks in `docs/policies.md`, the
files of the migration, the reference of the commands in `docs/commands.md`, and the keys of a
relay's file in `docs/hybrid.md`; or says which of them are not as they would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.documentation import command_reference, mapping_table, relay_keys, worked_migration

PAGE = Path("policies.md")
COMMANDS = Path("commands.md")
HYBRID = Path("hybrid.md")


class NoMarks(ValueError):
    """The page has no place for what is made."""


def files(docs: Path) -> dict[Path, str]:
    """Return every generated file with its text, line ends included.

    Raises:
        NoMarks: the page lacks a mark.
    """
    folder = docs / worked_migration.FOLDER
    section, written = worked_migration.made((folder / "template.json").read_text(encoding="utf-8"))
    page = (docs / PAGE).read_text(encoding="utf-8")
    page = inserted(page, "mapping table", mapping_table.markdown())
    page = inserted(page, "worked migration", section)
    commands = (docs / COMMANDS).read_text(encoding="utf-8")
    commands = inserted(commands, "command reference", command_reference.markdown())
    hybrid = (docs / HYBRID).read_text(encoding="utf-8")
    return {
        **{folder / name: text for name, text in written.items()},
        docs / PAGE: page,
        docs / COMMANDS: commands,
        docs / HYBRID: inserted(hybrid, "keys of a relay's file", relay_keys.markdown()),
    }


def inserted(page: str, what: str, text: str) -> str:
    """Return a page with what is made between its marks.

    Raises:
        NoMarks: the page lacks one of them.
    """
    first = f"<!-- {what}: made by `python -m tests.documentation`; do not edit -->"
    last = f"<!-- end of the {what} -->"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise NoMarks(f"The page has no lines {first!r} and {last!r}.")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.documentation")
    parser.add_argument("docs", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    code = 0
    for path, text in files(options.docs).items():
        if path.exists() and path.read_bytes() == text.encode():
            continue
        if options.check:
            sys.stderr.write(
                f"{path} is not what the code writes. "
                f"Run 'python -m tests.documentation {options.docs}'.\n"
            )
            code = 1
        else:
            path.write_bytes(text.encode())
    return code
