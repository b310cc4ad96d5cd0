"""Entry point of the command `busbridge`; names the missing extra if only the library is there."""

from __future__ import annotations

import sys

OWN = ("bridge", "policies")


def main() -> int:
    """Run the command line and return its exit code; 2 when the bridge's packages are missing."""
    try:
        from bridge.cli.main import main as run
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in OWN:
            raise
        print(
            f"busbridge: the package {name} is missing: only the library is installed. For the "
            "bridge: pip install '.[serve]' in the project's folder, or the wheel with [serve] "
            "behind its name",
            file=sys.stderr,
        )
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
