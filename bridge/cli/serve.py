"""`busbridge serve`: RabbitMQ, engine, sidecar, gateway and admin in one process.

They start in that order and stop in the other: no new work, what is under way settles, then the
connections close. Every step of stopping has a deadline; the whole ends within five seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bridge.admin.application import application
from bridge.admin.server import AdminServer
from bridge.admin.service import Service
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import AccessRefused, BrokerError, ManagementRefused, NotFound
from bridge.broker.management.api import Management
from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from bridge.broker.retry import retry
from bridge.cli.build import BUILD
from bridge.cli.certified import Certified, certify
from bridge.cli.listening import listen
from bridge.cli.logs import start_logging
from bridge.cli.measures import families
from bridge.cli.settings import Port, Settings, SettingsError, read_settings
from bridge.cli.stalls import Stalls
from bridge.cli.stopping import Stopping, first
from bridge.engine.administration.directory import Directory
from bridge.engine.namespace import RabbitNamespace
from bridge.gateway.server import Gateway
from bridge.gateway.settings import Settings as GatewaySettings
from bridge.gateway.site import authorize
from bridge.model import entity as model
from bridge.model.access_rules import RuleSet, read_rules
from bridge.model.errors import ServiceBusError
from bridge.sidecar.idle_watch import IdleWatch
from bridge.sidecar.journal_watch import JournalWatch
from bridge.sidecar.leader_state import Companion
from bridge.sidecar.sidecar import Sidecar
from bridge.topology.capabilities import Capabilities
from bridge.topology.findings import BY_THE_BRIDGE
from bridge.topology.resources import Finding
from policies import report
from policies.errors import ReadError
from policies.grade import Flavour, Grade
from policies.readers import emulator
from policies.readers.detect import decode
from policies.readers.reading import Reading

_log = logging.getLogger("busbridge.serve")

WELL_KNOWN_RULE = model.AuthorizationRule(
    name="RootManageSharedAccessKey",
    primary_key="SAS_KEY_VALUE",
    rights=frozenset(model.Right),
)
"""The emulator's rule and key, which every SDK's documentation names; for loopback only."""

APPLY_AGAIN_S = 0.5
APPLIED_S = 30.0
"""How long a start waits for queues that are there and not up, and how often it tries."""

_FILES_MAX = 65_536
"""Open files of the process, if the system allows as many: each connection is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listeners:
    amqp: socket.socket
    admin: socket.socket
    tls: tuple[socket.socket, ...]


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    settings = read_settings(arguments)
    start_logging(settings.log_level)
    _raise_file_limit()
    rules = _rules(settings)
    wanted = _wanted(settings)
    listeners = _listeners(settings)
    certified = certify(settings)
    try:
        _run(_serve(settings, rules, wanted, listeners, certified))
    except asyncio.CancelledError:
        return 0  # told to stop while it started
    except (BrokerError, ServiceBusError) as error:
        print(f"busbridge: {error}{_advice(error)}", file=sys.stderr)
        return 1
    return 0


def _raise_file_limit() -> None:
    """Let the process have as many connections as the system allows; it begins with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _advice(error: Exception) -> str:
    """Return what an operator does about a right that is missing."""
    if isinstance(error, AccessRefused):
        return (
            ". The bridge's user needs the rights configure, write and read on everything in its "
            "virtual host."
        )
    if isinstance(error, ManagementRefused) and error.code in (401, 403):
        return ". The bridge's user needs the tag policymaker, and access to its virtual host."
    return ""


def _run(work: Awaitable[None]) -> None:
    """Run on uvloop where it is installed: less time a message in one-at-a-time traffic."""

    async def main() -> None:
        await work

    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


def _rules(settings: Settings) -> RuleSet:
    if settings.auth is not None:
        try:
            rules = read_rules(_text(settings.auth))
        except (ReadError, ServiceBusError) as error:
            raise SettingsError(f"--auth {settings.auth}: {error}") from error
        if not settings.is_loopback and rules.has_key(WELL_KNOWN_RULE.primary_key):
            raise SettingsError(
                f"--auth {settings.auth}: a rule has the well-known key, and others can reach "
                f"{settings.host}. Give it a key of your own."
            )
        return rules
    if not settings.is_loopback:
        raise SettingsError(
            f"On {settings.host}, which others can reach, the bridge does not start with the "
            "well-known key. Give rules of your own with --auth."
        )
    return RuleSet(namespace=(WELL_KNOWN_RULE,))


def _text(path: Path) -> str:
    """Return a file's text, as the readers of `policies` take it."""
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise SettingsError(f"The file {path} cannot be read: {error.strerror}.") from error


def _wanted(settings: Settings) -> model.Namespace | None:
    """Return what `--config` says, if it is given."""
    if settings.config is None:
        return None
    try:
        reading = emulator.read(_text(settings.config), str(settings.config))
    except ReadError as error:
        raise SettingsError(str(error)) from error
    for finding in reading.findings:
        _log.warning(
            "config.finding entity=%s property=%s message=%r",
            finding.entity,
            finding.property,
            finding.message,
        )
    return reading.namespace


def _applied(
    stored: model.Namespace, wanted: model.Namespace | None, tier: model.Tier | None
) -> model.Namespace:
    """Return what is applied: what nothing is said about stays as RabbitMQ has it."""
    return model.Namespace(
        name=stored.name if wanted is None else wanted.name,
        tier=tier or stored.tier,
        queues=() if wanted is None else wanted.queues,
        topics=() if wanted is None else wanted.topics,
        authorization_rules=stored.authorization_rules,
    )


def _listeners(settings: Settings) -> _Listeners:
    """Take the ports first: nothing is started when one of them cannot be had."""
    return _Listeners(
        amqp=_listener(settings, settings.port, "port"),
        admin=_listener(settings, settings.admin_port, "admin-port"),
        tls=tuple(_listener(settings, port, "tls-port") for port in settings.tls_ports),
    )


def _listener(settings: Settings, port: Port, option: str) -> socket.socket:
    listener, sentence = listen(settings.host, port, option)
    if sentence is not None:
        print(sentence, flush=True)
    return listener


async def _serve(
    settings: Settings,
    rules: RuleSet,
    config: model.Namespace | None,
    listeners: _Listeners,
    certified: Certified,
) -> None:
    stopping = Stopping()
    async with AsyncExitStack() as parts:
        parts.push_async_callback(stopping.end_rest)
        endpoint, management_urls = await parts.enter_async_context(_rabbitmq(settings, stopping))
        management = await parts.enter_async_context(Management(endpoint, management_urls))
        namespace = RabbitNamespace(
            endpoint,
            management,
            scheduled=lambda entity: sidecar.scheduled(entity),
            waiting=lambda entity, number, count: sidecar.waiting(entity, number, count),
        )
        wanted = _applied(await Directory(management).read(), config, settings.tier)
        sidecar = Sidecar(
            endpoint,
            tier=wanted.tier,
            on_full=namespace.note_full,
            poison=namespace.poison,
            companion=Companion(namespace.forwarding.lead, namespace.forwarding.leave),
        )
        namespace.follow(sidecar.follow)
        service = Service(
            lambda: namespace.administration,
            namespace.counting,
            lambda: gateway.rules,
            on_authorized=authorize,
        )
        gateway = Gateway(
            namespace,
            rules,
            GatewaySettings(
                namespace_name=wanted.name,
                message_bytes_max=model.TIER_MESSAGE_SIZE_MAX_BYTES[wanted.tier],
                connections_max=settings.connections_max,
                strangers_max=settings.unauthenticated_max,
            ),
            app=application(service),
        )
        namespace.follow(lambda definitions: _heed(gateway, rules, definitions))
        told: set[Finding] = set()
        namespace.follow(lambda definitions: _tell(definitions, namespace.capabilities, told))
        stalls = Stalls()
        stalls.start()
        parts.callback(stalls.stop)
        admin = AdminServer(
            reasons=lambda: [*namespace.state.reasons, *sidecar.reasons],
            warnings=lambda: _warnings(namespace, sidecar),
            families=lambda: families(namespace, sidecar, gateway, stalls),
            service=service,
        )
        await admin.start(listeners.admin)
        parts.push_async_callback(stopping.within, admin.close)
        parts.push_async_callback(stopping.within, namespace.close)
        await namespace.start()
        # A RabbitMQ that has just started may not have all its queues up yet.
        await retry(
            partial(namespace.apply, wanted),
            wait_s=APPLY_AGAIN_S,
            retryable=lambda error: isinstance(error, NotFound),
            total_s=APPLIED_S,
        )
        _log_findings(namespace.findings, is_private=settings.endpoint is None)
        working = asyncio.create_task(sidecar.run(), name="sidecar")
        parts.push_async_callback(_stop_sidecar, stopping, sidecar, working)
        watching = asyncio.create_task(
            IdleWatch(sidecar, namespace.disposal).run(), name="idle watch"
        )
        parts.push_async_callback(stopping.end, watching)
        bounding = asyncio.create_task(JournalWatch(sidecar, management).run(), name="journals")
        parts.push_async_callback(stopping.end, bounding)
        await first(sidecar.connected.wait(), working)
        await gateway.listen_on(listeners.amqp, tls=certified.tls)
        parts.push_async_callback(stopping.within, gateway.stop)
        for listener in listeners.tls:
            await gateway.listen_on(listener, tls=certified.tls, is_tls_only=True)
        version = (await management.overview()).get("rabbitmq_version", "?")
        facts = f"rabbitmq={endpoint} version={version} build={BUILD}{certified.said}"
        print(_ready_line(settings, listeners, facts), flush=True)
        stopping.started()
        await stopping.wait(working)


@asynccontextmanager
async def _rabbitmq(
    settings: Settings, stopping: Stopping
) -> AsyncIterator[tuple[Endpoint, Sequence[str]]]:
    """The RabbitMQ that was named, or one of our own that ends with the bridge."""
    if settings.endpoint is not None:
        yield settings.endpoint, settings.management_urls
        return
    installation = Installation.find()
    if installation is None:
        raise SettingsError(
            "There is no RabbitMQ on this machine. Install Debian's package rabbitmq-server "
            "(`make setup` does so as root), or give --rabbitmq-url."
        )
    node = Node(settings.data_dir / "rabbitmq", installation)
    await node.start()
    try:
        yield node.endpoint, (node.management_url,)
    finally:
        # An orderly stop of 3.10 takes 8 s; a kill loses nothing.
        await node.stop(stopping.left_s)


def _log_findings(findings: Sequence[Finding], *, is_private: bool) -> None:
    """Name what this RabbitMQ does not do as Service Bus does it, once, at the start.

    What the bridge makes up for is no difference; our own RabbitMQ has its consumer timeout raised.
    """
    for finding in findings:
        is_raised = is_private and not finding.entity and finding.property == "LockDuration"
        if finding.grade != BY_THE_BRIDGE and not is_raised:
            _log.warning(
                "rabbitmq.finding entity=%s property=%s grade=%s message=%r",
                *(finding.entity, finding.property, finding.grade, finding.message),
            )


def _tell(definitions: model.Namespace, capabilities: Capabilities, told: set[Finding]) -> None:
    """Name what definitions ask for and this release does not do, each once."""
    target = Flavour.BRIDGE, ".".join(map(str, capabilities.version))
    found = report.make(
        Reading(namespace=definitions), flavours=[Flavour.BRIDGE], versions=[target[1]]
    )
    for entry in found.entries:
        case = entry.grades[target]
        finding = Finding(
            entity=entry.entity, property=entry.name, grade=case.grade.value, message=case.note
        )
        # What a topic lacks is named with the topic.
        is_named = entry.kind == "Subscription" or finding in told
        if case.grade is Grade.LOST and not is_named:
            told.add(finding)
            _log.warning(
                "definition.lost entity=%s property=%s value=%r message=%r",
                *(finding.entity, finding.property, entry.value, finding.message),
            )


def _heed(gateway: Gateway, rules: RuleSet, definitions: model.Namespace) -> None:
    gateway.rules = rules.merged(RuleSet.of(definitions))
    gateway.recheck()


def _warnings(namespace: RabbitNamespace, sidecar: Sidecar) -> list[str]:
    """Return what is wrong with single entities."""
    return namespace.warnings + [each.sentence for each in sidecar.silent]


async def _stop_sidecar(stopping: Stopping, sidecar: Sidecar, working: asyncio.Task[None]) -> None:
    await stopping.within(sidecar.stop)
    await stopping.end(working)


def _ready_line(settings: Settings, listeners: _Listeners, facts: str) -> str:
    port = listeners.amqp.getsockname()[1]
    admin_port = listeners.admin.getsockname()[1]
    host = settings.host_for_clients
    facts = f"ready admin=http://{host}:{admin_port} {facts}"
    if listeners.tls:
        facts += f" tls-port={','.join(str(each.getsockname()[1]) for each in listeners.tls)}"
    if settings.auth is not None:
        name, key = "NAME", "KEY"
    else:
        name, key = WELL_KNOWN_RULE.name, WELL_KNOWN_RULE.primary_key
    return (
        f"{facts} Endpoint=sb://{host}:{port};SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )
