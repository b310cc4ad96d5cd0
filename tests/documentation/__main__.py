"""See `generated`."""

from __future__ import annotations

import sys

from tests.documentation.generated import main

if __name__ == "__main__":
    sys.exit(main())
