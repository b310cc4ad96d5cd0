"""Entry point of the command `busbridge`; names the missing extra if only the library is there.

`--version`, every `--help` and `policies` need the library's packages alone; a module that needs
more is imported by the command that runs it.
"""

from __future__ import annotations

import sys

OWN = ("bridge", "policies")


def main() -> int:
    """Run the command line and return its exit code; 2 when the bridge's packages are missing."""
    try:
        from bridge.cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in OWN:
            raise
        print(
            f"busbridge: this needs the package {name}, and only the library is installed: "
            "pip install '.[serve]' in the project's folder, or the wheel with [serve] behind its "
            "name (`policies` does without by --rabbitmqctl)",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
