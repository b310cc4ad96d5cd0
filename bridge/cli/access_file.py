"""The rules file (`--auth`) of a bridge: read at the start, and again after each change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from bridge.access.access import Access
from bridge.access.fetching import FetchFailed, keys_of_file
from bridge.cli.config import text_of
from bridge.cli.settings import Settings, SettingsError
from bridge.model.access_policy import AccessPolicy, read_policy
from bridge.model.access_rules import WELL_KNOWN_RULE, AccessRuleSet
from bridge.model.errors import ServiceBusError
from bridge.model.issuers.issuer import Issuer
from policies.errors import ReadError

_log = logging.getLogger("busbridge.access")

READ_S = 5.0
"""How often the file is read: a change is in force within 15 s."""


def policy_of(settings: Settings) -> AccessPolicy:
    """Return the policy that a bridge starts with.

    Raises:
        SettingsError: the rules file, or a JWKS file that it names, cannot be used.
    """
    if settings.auth is not None:
        return checked(read_file(settings.auth), settings)
    if not settings.is_loopback:
        raise SettingsError(
            f"On {settings.host}, which others can reach, the bridge does not start with the "
            "well-known key. Give rules of your own with --auth."
        )
    return AccessPolicy(AccessRuleSet(namespace=(WELL_KNOWN_RULE,)))


def read_file(path: Path, known: Container[str] = ()) -> AccessPolicy:
    """Return the policy of a rules file; names of files in it are relative to its folder.

    Args:
        known: JWKS files that are followed already: they are not looked at.

    Raises:
        SettingsError: the file, or a JWKS file that it names, cannot be used.
    """
    try:
        policy = read_policy(text_of(path))
        issuers = tuple(_located(issuer, path.parent) for issuer in policy.issuers)
        for issuer in issuers:
            if issuer.keys.file and issuer.keys.file not in known:
                keys_of_file(issuer.keys.file)
    except (ReadError, ServiceBusError, FetchFailed) as error:
        raise SettingsError(f"--auth {path}: {error}") from error
    return AccessPolicy(policy.rules, issuers)


def checked(policy: AccessPolicy, settings: Settings) -> AccessPolicy:
    """Return a rules file's policy, unless it gives away a bridge that others can reach.

    Raises:
        SettingsError: a rule has the well-known key.
    """
    if not settings.is_loopback and policy.rules.has_key(WELL_KNOWN_RULE.primary_key):
        raise SettingsError(
            f"--auth {settings.auth}: a rule has the well-known key, and others can reach "
            f"{settings.host}. Give it a key of your own."
        )
    return policy


def _located(issuer: Issuer, folder: Path) -> Issuer:
    """Return an issuer with the paths of its files relative to a folder, if they are relative."""
    places = {
        name: str(folder / value)
        for name in ("file", "ca", "bearer")
        if (value := getattr(issuer.keys, name))
    }
    return replace(issuer, keys=replace(issuer.keys, **places))


class AccessFile:
    """Has a bridge take over changes of its rules file.

    A file that cannot be used leaves in force what was read before, and the bridge not ready.
    """

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access

    async def run(self) -> None:
        """Read the file again and again, for ever."""
        while True:
            await asyncio.sleep(READ_S)
            await self.read()

    async def read(self) -> None:
        """Read the file once."""
        path = self._settings.auth
        assert path is not None
        try:
            known = [issuer.keys.file for issuer in self._access.policy.issuers]
            policy = await asyncio.to_thread(read_file, path, known)
            checked(policy, self._settings)
        except SettingsError as error:
            fault = f"The rules file is not in force as it is now: {error}"
            if fault != self._access.file_fault:
                _log.error("access.file_refused reason=%r", str(error))
            self._access.file_fault = fault
            return
        self._access.file_fault = ""
        if self._access.replace(policy):
            _log.info(
                "access.file_taken rules=%d issuers=%d",
                *(policy.rules.count, len(policy.issuers)),
            )
