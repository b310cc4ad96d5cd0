"""A bridge's process: open files, event loop, and exit code."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Awaitable

from bridge.broker.errors import (
    AccessRefused,
    BrokerError,
    LoginRefused,
    ManagementRefused,
    ManagementSilent,
    TooOld,
)
from bridge.cli.garbage import in_steps
from bridge.model.errors import ServiceBusError
from bridge.topology.capabilities import UnsupportedVersion

_FILES_MAX = 65_536
"""Limit of open files of the process, if the system allows as many: each connection is a file."""


def run_to_end(work: Awaitable[None]) -> int:
    """Run until the work ends; return the exit code, with a sentence in case of failure."""
    _raise_file_limit()
    try:
        _run(work)
    except asyncio.CancelledError:
        return 0  # told to stop while it started
    except (BrokerError, ServiceBusError, UnsupportedVersion) as error:
        print(f"busbridge: {error}{advice(error)}", file=sys.stderr)
        return 1
    return 0


def _raise_file_limit() -> None:
    """Raise the limit of open files, 1,024 at first, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def advice(error: Exception, *, tag: str = "policymaker") -> str:
    """Return the advice to an operator about an error of RabbitMQ's, "" if there is none.

    Args:
        tag: the required tag of RabbitMQ's user.
    """
    match error:
        case ManagementSilent():
            return (
                ". Start RabbitMQ with its management plugin (rabbitmq-plugins enable "
                "rabbitmq_management), or say where its API is with --management-url."
            )
        case TooOld() | UnsupportedVersion():
            return (
                ". Upgrade RabbitMQ, or name a newer one with --rabbitmq-url; `make run` brings "
                "one of its own."
            )
        case LoginRefused():
            return (
                ". Look at user, password and virtual host in --rabbitmq-url, and at the user's "
                "permissions (rabbitmqctl list_user_permissions USER)."
            )
        case AccessRefused():
            return (
                ". The user needs the rights configure, write and read on everything in the "
                "virtual host."
            )
        case ManagementRefused(code=401 | 403):
            return f". The user needs the tag {tag}, and access to the virtual host."
    return ""


def _run(work: Awaitable[None]) -> None:
    """Run on uvloop if installed: less time a message in one-at-a-time traffic."""

    async def main() -> None:
        with in_steps():
            await work

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())
