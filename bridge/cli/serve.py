"""`busbridge serve`: a bridge and its gateway in one process."""

from __future__ import annotations

import argparse
import socket
from dataclasses import dataclass

from bridge.access.access import Access
from bridge.admin.service import Service
from bridge.cli.access_file import AccessFile, policy_of
from bridge.cli.bridge import bridge_of
from bridge.cli.certified import Certified, certify
from bridge.cli.config import read_config
from bridge.cli.listening import listen
from bridge.cli.logs import start_logging
from bridge.cli.overdue import Overdue
from bridge.cli.process import run_to_end
from bridge.cli.settings import Settings, read_settings
from bridge.gateway.client.settings import GatewaySettings as GatewaySettings
from bridge.gateway.http.site import authorize
from bridge.gateway.server import Gateway
from bridge.model import entity as model
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import WELL_KNOWN_RULE, AccessRuleSet
from bridge.rest.application import application
from bridge.rest.messages import Messages
from bridge.topology.entity_table import Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listeners:
    amqp: socket.socket
    admin: socket.socket
    tls: tuple[socket.socket, ...]


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    settings = read_settings(arguments)
    start_logging(settings.log_level)
    policy = policy_of(settings)
    config = read_config(settings)
    listeners = _listeners(settings)
    certified = certify(settings)
    return run_to_end(_serve(settings, policy, config, listeners, certified))


def _listeners(settings: Settings) -> _Listeners:
    """Open the ports first: nothing is started when a port is unavailable."""
    host = settings.host
    return _Listeners(
        amqp=listen(host, settings.port, "port"),
        admin=listen(host, settings.admin_port, "admin-port"),
        tls=tuple(listen(host, port, "tls-port") for port in settings.tls_ports),
    )


async def _serve(
    settings: Settings,
    policy: AccessPolicy,
    config: model.Namespace | None,
    listeners: _Listeners,
    certified: Certified,
) -> None:
    async with bridge_of(settings, config, overdue=Overdue()) as bridge:
        access = Access(policy)
        service = Service(bridge.operations, access, on_authorized=authorize)
        messages = Messages(bridge.namespace, access)
        gateway = Gateway(
            bridge.namespace,
            access,
            GatewaySettings(
                namespace_name=bridge.wanted.name,
                connections_max=settings.connections_max,
                unauthenticated_max=settings.unauthenticated_max,
                rabbitmq_ports=bridge.rabbitmq_ports,
            ),
            app=application(service, messages),
            supervisor=bridge.supervisor,
        )
        bridge.namespace.directory.follow(Heeding(gateway).follow)
        bridge.guard(access, AccessFile(settings, access).run if settings.auth else None)
        await bridge.start(listeners.admin, gateway=gateway, service=service)
        await gateway.listen(listeners.amqp, tls=certified.tls)
        bridge.on_stop(gateway.stop)
        for listener in listeners.tls:
            await gateway.listen(listener, tls=certified.tls, is_tls_only=True)
        ready = await bridge.ready(listeners.admin)
        print(f"{ready}{certified.said}{_address(settings, listeners)}", flush=True)
        await bridge.serve()


class Heeding:
    """Has a gateway take over the access rules of changed entities, and end links."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._of_entities: dict[str, tuple[str, tuple[model.AuthorizationRule, ...]]] = {}
        self._of_namespace: tuple[model.AuthorizationRule, ...] = ()

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions; new entities end no link."""
        self._take_rules(changes)
        if changes.before:
            self._gateway.connections.recheck()

    def _take_rules(self, changes: Changes) -> None:
        """Take over access rules, if any has changed."""
        before = {
            path: self._of_entities.pop(path)
            for path in changes.before
            if path in self._of_entities
        }
        after = {
            path: (entity.name, entity.authorization_rules)
            for path, entity in changes.fronts
            if entity.authorization_rules
        }
        self._of_entities |= after
        own, self._of_namespace = self._of_namespace, changes.namespace.authorization_rules
        if before == after and own == self._of_namespace:
            return
        self._gateway.access.take_definitions(
            AccessRuleSet(namespace=self._of_namespace, entities=dict(self._of_entities.values()))
        )


def _address(settings: Settings, listeners: _Listeners) -> str:
    """Return the end of the `ready` line: the address for clients."""
    port = listeners.amqp.getsockname()[1]
    tls = ""
    if listeners.tls:
        tls = f" tls-port={','.join(str(each.getsockname()[1]) for each in listeners.tls)}"
    if settings.auth is not None:
        name, key = "NAME", "KEY"
    else:
        name, key = WELL_KNOWN_RULE.name, WELL_KNOWN_RULE.primary_key
    return (
        f"{tls} Endpoint=sb://{settings.host_for_clients}:{port};SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )
