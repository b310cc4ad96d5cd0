"""Options of `busbridge serve` and `sidecar`, with their environment variables.

The table `OPTIONS` holds all options: `--rabbitmq-url` is also `BUSBRIDGE_RABBITMQ_URL`, and so on.
An option takes precedence over its environment variable.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bridge.model.entity import SESSION_SHARDS_DEFAULT, SESSION_SHARDS_MAX

PORT_DEFAULT = 5672
"""The port of Azure's emulator."""

ADMIN_PORT_DEFAULT = 5300
"""The HTTP port of Azure's emulator."""

TLS_PORT_DEFAULT = 5671
"""The port of AMQP over TLS (AMQP 1.0, IANA)."""

PREFIX = "BUSBRIDGE_"
"""The begin of the bridge's environment variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: name, meaning, placeholder and default."""

    name: str
    help: str
    metavar: str = "VALUE"
    default: str | None = None

    @property
    def variable(self) -> str:
        """The option's environment variable."""
        return PREFIX + self.name.replace("-", "_").upper()


OPTIONS = (
    Option(
        name="rabbitmq-url",
        metavar="URL",
        help="amqp[s]://user:password@host[:port][,host2...]/vhost; without it a private RabbitMQ "
        "is started and its data kept in --data-dir",
    ),
    Option(name="rabbitmq-ca", metavar="FILE", help="CA that signed RabbitMQ's certificate"),
    Option(name="rabbitmq-cert", metavar="FILE", help="client certificate for RabbitMQ"),
    Option(name="rabbitmq-key", metavar="FILE", help="its key, if not in the same file"),
    Option(
        name="management-url",
        metavar="URL",
        help="RabbitMQ's management API, several with commas between them; default: port 15672 "
        "(amqps: https and 15671) at each host of --rabbitmq-url",
    ),
    Option(
        name="data-dir",
        metavar="DIR",
        default=".busbridge",
        help="where the private RabbitMQ lives",
    ),
    Option(name="host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on"),
    Option(
        name="port",
        metavar="PORT",
        help="port of AMQP 1.0 and HTTP, both plain or in TLS; "
        f"default {PORT_DEFAULT} or the next free",
    ),
    Option(
        name="admin-port",
        metavar="PORT",
        help=f"HTTP port of health and metrics; default {ADMIN_PORT_DEFAULT} or the next free",
    ),
    Option(
        name="tls-cert",
        metavar="FILE",
        help="certificate for TLS; without it one is made in --data-dir on loopback, and wherever "
        "--tls-name is given (see `busbridge trust`)",
    ),
    Option(name="tls-key", metavar="FILE", help="its key, if not in the same file"),
    Option(
        name="tls-name",
        metavar="NAME",
        help="host name or address that the certificate made is for, several with commas between "
        "them; it is always for localhost, 127.0.0.1 and ::1",
    ),
    Option(
        name="tls-port",
        metavar="PORT",
        help="port of TLS alone, several with commas between them, as 5671,443; default with "
        f"--tls-cert: {TLS_PORT_DEFAULT} or the next free",
    ),
    Option(
        name="connections-max",
        metavar="COUNT",
        default="5000",
        help="connections of all clients together; those above are refused",
    ),
    Option(
        name="unauthenticated-max",
        metavar="COUNT",
        default="100",
        help="connections of one address that have shown no token yet; those above are refused",
    ),
    Option(
        name="drain",
        metavar="SECONDS",
        default="4",
        help="how long SIGTERM lets clients settle what they have received, from 0 on",
    ),
    Option(
        name="session-shards",
        metavar="COUNT",
        default=str(SESSION_SHARDS_DEFAULT),
        help=f"1 to {SESSION_SHARDS_MAX}: queues that share the sessions of an entity which is "
        "created from now on, each owned by one bridge",
    ),
    Option(
        name="own-vhost",
        metavar="yes/no",
        default="no",
        help="yes: RabbitMQ's virtual host has no quorum queues but ours (docs/policies.md)",
    ),
    Option(name="config", metavar="FILE", help="entities, in the schema of Azure's emulator"),
    Option(name="auth", metavar="FILE", help="shared access rules (JSON); see docs/operations.md"),
    Option(
        name="tier",
        metavar="TIER",
        help="Basic, Standard or Premium; default: what RabbitMQ has of this namespace, "
        "else Standard",
    ),
    Option(name="log-level", metavar="LEVEL", default="info", help="debug, info, warning or error"),
)


def add_options(parser: argparse._ActionsContainer, only: Collection[str] = ()) -> None:
    """Add the options of `serve`, or some; absent options are `None` until `read_settings`."""
    for option in OPTIONS:
        if only and option.name not in only:
            continue
        default = f" [{option.default}]" if option.default else ""
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            help=f"{option.help}{default} (${option.variable})".replace("%", "%%"),
        )


def values_of(
    arguments: argparse.Namespace, environment: Mapping[str, str], only: Collection[str] = ()
) -> dict[str, str | None]:
    """Return what options and environment say, by the options' names."""
    values: dict[str, str | None] = {}
    for option in OPTIONS:
        given = getattr(arguments, option.name.replace("-", "_"), None)
        said = environment.get(option.variable) if not only or option.name in only else None
        values[option.name] = given or said or option.default
    return values
