"""Files of a relay for tests, and what their secrets are."""

from __future__ import annotations

from uuid import UUID

from bridge.relay.plan.file import Reading, read_file
from bridge.relay.plan.route import RelayFile

LOGIN = "SharedAccessKeyName=all;SharedAccessKey=c2VjcmV0"
AZURE = f"Endpoint=sb://shop.servicebus.windows.net/;{LOGIN}"
LOCAL = f"Endpoint=sb://bridge.example.com:5672;{LOGIN};UseDevelopmentEmulator=true"

SIDES = """\
[sides.azure]
env = "AZURE"

[sides.local]
file = "local.secret"
"""
"""Five lines."""


class Secrets:
    """A variable `AZURE`, a file `local.secret`, and a certificate `ca.pem`."""

    def variable(self, name: str) -> str:
        if name != "AZURE":
            raise ValueError(f"The environment variable {name} is not set, or is empty.")
        return AZURE

    def file(self, path: str) -> str:
        if path != "local.secret":
            raise ValueError(f"The file {path} cannot be read: No such file or directory.")
        return LOCAL

    def path(self, path: str) -> str:
        if path != "ca.pem":
            raise ValueError(f"There is no file {path}.")
        return f"/etc/{path}"


def reading(text: str, *, allows_inline: bool = False) -> Reading:
    """Read a file."""
    return read_file(text, Secrets(), lambda: UUID(int=0), allows_inline_secrets=allows_inline)


def file_of(routes: str) -> RelayFile:
    """Return a file with the two sides and these routes."""
    return reading(SIDES + routes).whole()


def route(source: str, target: str, **values: str) -> str:
    """Return the table of a route; the values are as TOML has them; a filter drops the others."""
    if "filter" in values:
        values.setdefault("else", '"complete"')
    rest = "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in values.items())
    return f'[[routes]]\nfrom = "{source}"\nto = "{target}"\n{rest}'
