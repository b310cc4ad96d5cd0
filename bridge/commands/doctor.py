"""`busbridge doctor`: what is wrong with the way to a namespace, or with a bridge's RabbitMQ."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bridge.commands.doctor_checks import Finding, certificate, clock, health, ports, rights
from bridge.commands.doctor_rabbitmq import rabbitmq
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.target import NamespaceLogin, add_target, target_of

COLUMNS = ("check", "result", "text")
PACKAGES = ("aiohttp", "azure-identity", "azure-servicebus", "cryptography", "pika", "rich")


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        "check versions, ports, certificate, clock, rights, and a bridge's RabbitMQ",
        run=run,
        right="Manage on the namespace for --probe; none for the rest",
        examples=(
            "busbridge doctor --entity orders",
            "busbridge doctor --bundle report.zip",
        ),
    )
    parser.add_argument(
        "--entity", action="append", default=[], metavar="ENTITY",
        help="an entity on which Send and Listen are tried, by attaching to it; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--admin-url", metavar="URL",
        help="what a bridge says of itself: http://HOST:PORT of its --admin-port",
    )  # fmt: skip
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE",
        help="write the findings, versions, and the entities with their counts into a zip file, "
        "for whoever helps you; it has no keys and no messages",
    )  # fmt: skip
    parser.add_argument(
        "--probe", type=Path, metavar="FILE",
        help="find out by trying what Service Bus does where its documentation does not say: makes "
        "two queues, sends some 350 messages to them, writes the answers to FILE as JSON, and "
        "deletes the queues",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Check everything; DIFFERENCES if something has failed."""
    target = target_of(arguments)
    for path in (arguments.bundle, arguments.probe):
        if path is not None and not path.absolute().parent.is_dir():
            raise WrongInput(f"There is no folder {str(path.absolute().parent)!r}.")
    if arguments.probe is not None:
        from bridge.commands.probe import probe

        return await probe(target, arguments.probe, output)
    entities = arguments.entity or [each for each in (target.address.entity,) if each]
    findings: list[Finding] = []
    with output.progress(None, "checking") as progress:
        async for finding in checked(target, entities, arguments.admin_url):
            findings.append(finding)
            progress.advance()
            if not output.is_table:
                output.record(finding.row())
    if output.is_table:
        output.table([each.row() for each in findings], COLUMNS)
    if arguments.bundle is not None:
        from bridge.commands.bundle import write_bundle

        await write_bundle(arguments.bundle, target, findings)
        output.say(f"Written to {arguments.bundle}: look into it before you give it away.")
    failed = sum(each.result == "failed" for each in findings)
    return ExitCode.DIFFERENCES if failed else ExitCode.DONE


async def checked(
    target: NamespaceLogin, entities: list[str], admin_url: str | None = None
) -> AsyncIterator[Finding]:
    """Yield what each check finds, in order."""
    yield Finding("versions", "ok", versions())
    yield Finding("namespace", "ok", f"{target.name!r}: {target.address.url}")
    is_reached = True
    async for finding in ports(target):
        is_reached = is_reached and finding.result != "failed"
        yield finding
    yield await certificate(target, _now)
    yield await clock(target, _now)
    if is_reached:
        async for finding in rights(target, entities):
            yield finding
    if admin_url is not None:
        async for finding in health(admin_url):
            yield finding
    async for finding in rabbitmq(os.environ):
        yield finding


def _now() -> datetime:
    return datetime.now(UTC)


def versions() -> str:
    """Return the versions of the bridge and of what it works with."""
    found = [f"busbridge {version('busbridge')}", f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join([*found, platform.platform()])
