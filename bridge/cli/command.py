"""Entry point of the command `busbridge`; names the missing extra if only the library is there.

`--version`, every `--help` and `policies` need the library's packages alone; a module that needs
more is imported by the command that runs it.
"""

from __future__ import annotations

import sys

OWN = ("bridge", "policies")

EXTRAS = {"azure": "azure", "rich": "tools", "shtab": "tools"}
"""The extra that brings a package; any other comes with the extra of the command that needs it."""


def main() -> int:
    """Run the command line and return its exit code; 2 when the bridge's packages are missing."""
    try:
        from bridge.cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in OWN:
            raise
        print(_missing(name), file=sys.stderr)
        return 2


def _missing(package: str) -> str:
    from bridge.cli.main import COMMANDS, TOOLS, command_in

    is_tool = COMMANDS.get(command_in(sys.argv[1:]), "").startswith(TOOLS)
    extra = EXTRAS.get(package, "tools" if is_tool else "serve")
    how = (
        f"pip install '.[{extra}]' in the project's folder, or the wheel with [{extra}] behind its "
        "name"
    )
    if extra != "serve":
        return f"busbridge: this needs the package {package}, of the extra {extra!r}: {how}"
    return (
        f"busbridge: this needs the package {package}, and only the library is installed: {how} "
        "(`policies` does without by --rabbitmqctl)"
    )


if __name__ == "__main__":
    sys.exit(main())
