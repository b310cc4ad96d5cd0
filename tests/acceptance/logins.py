"""Applications that log in by token: an issuer, a bridge that trusts it, a program of each SDK."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.driver import Outcome, run_scenarios
from tests.acceptance.issuer import TENANT, Application, Issuer
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

ROLES = {"owner": "Azure Service Bus Data Owner", "receiver": "Azure Service Bus Data Receiver"}
AFTER_S = 5


@dataclass(frozen=True)
class Sdk:
    """A program of an SDK: what it is begun with, and when its client renews a token.

    Attributes:
        command: takes HOST:PORT, QUEUE and perhaps `load`.
        told_s: the lifetime that makes it renew well before `holds_s`.
        holds_s: how long its tokens hold in the test of renewals.
    """

    name: str
    command: Sequence[str]
    told_s: int
    holds_s: int


class Load:
    """A program that sends and completes until it is told to end.

    Attributes:
        rounds: when it had sent and completed another message, by the monotonic clock.
        errors: what has failed meanwhile.
    """

    def __init__(self, sdk: Sdk, process: subprocess.Popen[str]) -> None:
        self.sdk = sdk
        self.rounds: list[float] = []
        self.errors: list[str] = []
        self._process = process
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self) -> None:
        """End the program."""
        self._process.stdin.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def goes_on(self, count: int = 3) -> None:
        """Wait until so many more rounds are done."""
        wanted = len(self.rounds) + count
        eventually(lambda: len(self.rounds) >= wanted, f"{wanted} rounds of {self}")

    def lasts(self, for_s: float) -> None:
        """Wait for a round that is done so long after the first one."""
        eventually(
            lambda: self.errors or self.rounds[-1] - self.rounds[0] > for_s,
            f"{self} lasts",
            within_s=for_s + 120,
        )

    def fails(self) -> None:
        """Wait until something more has failed."""
        count = len(self.errors)
        eventually(lambda: len(self.errors) > count, f"{self} fails")

    def __repr__(self) -> str:
        lasted_s = self.rounds[-1] - self.rounds[0] if self.rounds else 0
        failed = f"errors={self.errors[-3:]}"
        return f"<Load {self.sdk.name} rounds={len(self.rounds)} in {lasted_s:.1f} s {failed}>"

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith('{"round"'):
                    self.rounds.append(time.monotonic())
                elif line.startswith('{"error"'):
                    self.errors.append(json.loads(line)["error"])


class Logins:
    """An issuer and a bridge, whose rules file the test may change.

    Attributes:
        sdks: each is an application of the issuer, with a queue of its name; its load has another,
            as it may leave a message there when it is ended.
    """

    def __init__(self, issuer: Issuer, rules: Path, sdks: Sequence[Sdk]) -> None:
        self.issuer = issuer
        self.sdks = sdks
        self.bridge: Bridge
        self._rules = rules

    def allow(self, role: str) -> None:
        """Let all applications be what one of `ROLES` says, once the file is read again."""
        issuers = [rule_of(self.issuer, ROLES[role]), entra_of(self.issuer, ROLES[role])]
        text = json.dumps({"issuers": issuers})
        beside = self._rules.with_suffix(".new")
        beside.write_text(text)
        beside.rename(self._rules)

    def run(self, sdk: Sdk, **environment: str) -> Mapping[str, Outcome]:
        """Run an SDK's scenarios once; return what became of each.

        Args:
            environment: in place of what tells the program's credential where its issuer is.
        """
        place = f"localhost:{self.bridge.port}"
        told = self._trust() | (environment or self._credential(sdk))
        return run_scenarios(sdk.command, place, sdk.name, **told)

    @contextmanager
    def loads(self) -> Iterator[Sequence[Load]]:
        """Run a load of each SDK; each has had rounds by then."""
        with ExitStack() as ends:
            loads = []
            for sdk in self.sdks:
                process = subprocess.Popen(
                    [*sdk.command, f"localhost:{self.bridge.port}", f"{sdk.name}-load", "load"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=os.environ | self._trust() | self._credential(sdk),
                )
                loads.append(Load(sdk, process))
                ends.callback(loads[-1].end)
            for load in loads:
                load.goes_on()
            yield loads

    def _credential(self, sdk: Sdk) -> dict[str, str]:
        return {
            "AUTHORITY": self.issuer.url,
            "TENANT": TENANT,
            "APPLICATION": sdk.name,
            "SECRET": f"secret of {sdk.name}",
        }

    def _trust(self) -> dict[str, str]:
        names = ("CA", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
        return dict.fromkeys(names, str(self.issuer.ca))


def application(name: str) -> Application:
    """An application with a role of the kind that an administrator gives it."""
    return Application(
        name, f"secret of {name}", {"oid": f"object of {name}", "roles": ["Bus.Use"]}
    )


def rule_of(issuer: Issuer, role: str) -> dict[str, Any]:
    """What the rules file has for an issuer, with a role for its applications."""
    return {
        "issuer": issuer.name,
        "audience": ["https://servicebus.azure.net", "https://servicebus.azure.net/"],
        "keys": {"ca": str(issuer.ca)},
        "grants": [{"claim": "roles", "value": "Bus.Use", "role": role}],
    }


def entra_of(issuer: Issuer, role: str) -> dict[str, Any]:
    """What the rules file has for a tenant of Entra whose keys are those of an issuer."""
    return {
        "entra": TENANT,
        "keys": {"url": f"{issuer.url}/{TENANT}/discovery/v2.0/keys", "ca": str(issuer.ca)},
        "grants": [{"claim": "appid", "value": "python", "role": role}],
    }


def failures(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return what has failed, with the first lines of why."""
    return [
        f"{name}: {outcome.detail[:600]}" for name, outcome in outcomes.items() if not outcome.is_ok
    ]


def test_an_application_without_a_key(logins: Logins, sdk: str) -> None:
    """It sends, receives, works in sessions and administers with what its issuer gives it."""
    (chosen,) = [each for each in logins.sdks if each.name == sdk]
    outcomes = logins.run(chosen)
    assert set(outcomes) == {"messages", "sessions", "administration"}
    found = failures(outcomes)
    assert not found, found


def test_an_application_with_a_default_credential(logins: Logins, library: str) -> None:
    """An issuer of one's own needs no change of code: SDKs take it for an AD FS."""
    (chosen,) = [each for each in logins.sdks if each.name == library]
    outcomes = logins.run(
        chosen,
        AZURE_AUTHORITY_HOST=logins.issuer.url,
        AZURE_TENANT_ID="adfs",
        AZURE_CLIENT_ID=library,
        AZURE_CLIENT_SECRET=f"secret of {library}",
    )
    found = failures(outcomes)
    assert not found, found


def test_a_load_goes_on_when_tokens_are_renewed_and_the_key_has_changed(logins: Logins) -> None:
    """Links live longer than the tokens that opened them; the renewed ones are by another key."""
    for sdk in logins.sdks:
        logins.issuer.give_for(sdk.name, sdk.holds_s, told_s=sdk.told_s)
    with logins.loads() as loads:
        logins.issuer.rotate()
        before = {sdk.name: logins.issuer.given(sdk.name) for sdk in logins.sdks}
        for load in loads:
            load.lasts(load.sdk.holds_s + AFTER_S)
        assert not any(load.errors for load in loads), loads
    for sdk in logins.sdks:
        assert logins.issuer.given(sdk.name) > before[sdk.name]


def test_a_token_that_ends_ends_its_links(logins: Logins) -> None:
    """A token that cannot be renewed, as the issuer is away, is good until its end, no longer."""
    holds_s = 40
    for sdk in logins.sdks:
        logins.issuer.give_for(sdk.name, holds_s, told_s=3600)
    begun_s = time.monotonic()
    with logins.loads() as loads, logins.issuer.away():
        for load in loads:
            load.fails()
        assert time.monotonic() - begun_s > holds_s - AFTER_S
        counts = [len(load.rounds) for load in loads]
        for load in loads:
            load.fails()
        assert [len(load.rounds) for load in loads] == counts, loads


def test_a_right_that_is_taken_away_ends_open_links(logins: Logins) -> None:
    """Senders end when the file lets nobody send any more, and are back when it does again."""
    for sdk in logins.sdks:
        logins.issuer.give(sdk.name, 3600)
    with logins.loads() as loads:
        logins.allow("receiver")
        for load in loads:
            load.fails()
        counts = [len(load.rounds) for load in loads]
        for load in loads:
            load.fails()
        assert [len(load.rounds) for load in loads] == counts, loads
        logins.allow("owner")
        for load in loads:
            load.goes_on()
