"""Azure's tests of the Go module azservicebus, from the module as it is published.

The module is not changed. One package that its tests import, `credential` of `sdk/internal`, is
replaced by `credential.go`: it asks an issuer of ours for a token, not Microsoft Entra. Each test
runs in a process of its own, so that one that hangs or panics costs no other. Of a test with
subtests these count; it counts itself when it fails and none of them does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.acceptance.balancer import Balancer
from tests.acceptance.issuer import TENANT, Issuer
from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker
from tests.parity import addresses
from tests.parity.score import Case
from tests.parity.serving import APPLICATION, issuing, serving, trusted

VERSION = "v1.10.0"
TITLE = f"Go: azservicebus {VERSION}"
SDK = "github.com/Azure/azure-sdk-for-go/sdk"
MODULE, INTERNAL = f"{SDK}/messaging/azservicebus", f"{SDK}/internal"
PACKAGES = (".", "admin", "internal")
"""Those whose tests speak to a service; they hold tests that do not, too."""

TIERS = "Standard", "Premium"
SLEEPERS = ("TestSessionReceiver_roundRobin",)
"""Begun first, else all wait for them at the end."""

TEST_S = 300
ERROR_MAX = 6000
CREDENTIAL = Path(__file__).parent / "credential.go"


_MARK = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME) +(\S*)")
_END = re.compile(r"(PASS|FAIL|SKIP): (\S+) \(")
_OUTCOMES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


@dataclass(frozen=True)
class _Test:
    package: Path
    program: Path
    file: str
    name: str

    @property
    def tier(self) -> str:
        """That of the namespace that the test wants."""
        return "Premium" if self.name.endswith("_Premium") else "Standard"


@dataclass(frozen=True)
class _Served:
    """A bridge, behind a balancer that counts who comes in."""

    bridge: Bridge
    door: Balancer
    issuer: Issuer

    def connection_string(self, rule: str) -> str:
        """Return that of a rule."""
        host = f"{addresses.LOCAL}:{self.door.port}"
        return f"Endpoint=sb://{host}/;SharedAccessKeyName={rule};SharedAccessKey={rule}"


def run(
    broker: Broker, folder: Path, workers: int, only: Sequence[str], ids: Sequence[str] = ()
) -> list[Case]:
    """Run the tests of all files, of some, or those with these ids; return what became of each."""
    module = _fetch(folder)
    tests = [test for test in _tests(module) if not only or test.file in only]
    tests = [test for test in tests if not ids or test.name in ids]
    tests.sort(key=lambda test: test.name not in SLEEPERS)
    free: dict[str, SimpleQueue[_Served]] = {tier: SimpleQueue() for tier in TIERS}

    def judge(test: _Test) -> list[Case]:
        served = free[test.tier].get()
        try:
            return _cases(test, served, folder)
        finally:
            free[test.tier].put(served)

    workers = 1 if ids else workers
    with ExitStack() as stack:
        issuer = stack.enter_context(issuing(folder))
        for tier, bridges_max in zip(TIERS, (workers, 1), strict=True):
            for _ in range(min(bridges_max, sum(test.tier == tier for test in tests))):
                served = stack.enter_context(_serving(broker, folder, issuer, tier))
                _make_queues(served)
                free[tier].put(served)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        return [case for cases in pool.map(judge, tests) for case in cases]


@contextmanager
def _serving(broker: Broker, folder: Path, issuer: Issuer, tier: str) -> Iterator[_Served]:
    options = ("--tier", tier)
    with Balancer() as door, serving(broker, folder, issuer, *options, port=door.port) as bridge:
        door.ports = (bridge.port,)
        yield _Served(bridge, door, issuer)


def _fetch(folder: Path) -> Path:
    """Return the module, with a go.mod beside its own that names our `credential`."""
    if shutil.which("go") is None:
        raise SystemExit("parity: Go 1.23 or newer is needed")
    module, internal = folder / "azservicebus", folder / "internal"
    if (folder / "parity.mod").exists():
        return module
    (row,) = _go_mod_download(folder, f"{MODULE}@{VERSION}")
    _copy(Path(row["Dir"]), module)
    found = {row["Path"]: Path(row["Dir"]) for row in _go_mod_download(module)}
    _copy(found[INTERNAL], internal)
    shutil.copy(CREDENTIAL, internal / "test" / "credential" / "credential.go")
    for suffix in ("mod", "sum"):
        shutil.copy(module / f"go.{suffix}", folder / f"parity.{suffix}")
    replacement = f"-replace={INTERNAL}={internal}"
    _go("mod", "edit", replacement, str(folder / "parity.mod"), cwd=folder)
    return module


def _go_mod_download(cwd: Path, *what: str) -> list[dict[str, str]]:
    """Return a row for each module; Go prints one JSON value after another."""
    text = _go("mod", "download", "-json", *what, cwd=cwd).strip()
    rows, decoder, at = [], json.JSONDecoder(), 0
    while at < len(text):
        row, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        rows.append(row)
    return rows


def _copy(source: Path, into: Path) -> None:
    shutil.copytree(source, into)
    for path in (into, *into.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # Go keeps modules read-only


def _tests(module: Path) -> Iterator[_Test]:
    for number, name in enumerate(PACKAGES):
        package, program = module / name, module.parent / f"package-{number}.test"
        modfile = f"-modfile={module.parent / 'parity.mod'}"
        _go("test", "-c", modfile, "-o", str(program), f"./{name}", cwd=module)
        for file in sorted(package.glob("*_test.go")):
            for test in re.findall(r"^func (Test\w+)\(\w+ \*testing\.T\)", file.read_text(), re.M):
                yield _Test(package, program, str(file.relative_to(module)), test)


def _cases(test: _Test, served: _Served, folder: Path) -> list[Case]:
    """Run a test; return what became of it, or of its subtests."""
    before = served.door.visits
    done = subprocess.run(
        [str(test.program), "-test.v", f"-test.timeout={TEST_S}s", f"-test.run=^{test.name}$"],
        cwd=test.package,
        env={**os.environ, **_environment(served)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        (folder / f"{test.name}.log").write_text(done.stdout)
    ends = read_output(test.name, done.stdout.splitlines(), is_ok=done.returncode == 0)
    is_served = served.door.visits > before
    return [
        Case(test.file, name, outcome, error if outcome == "failed" else "", is_served, test.name)
        for name, (outcome, error) in ends.items()
    ]


def read_output(test: str, lines: Iterable[str], *, is_ok: bool) -> dict[str, tuple[str, str]]:
    """Read what `-test.v` prints; return the outcome of each test that counts, and its own lines.

    Args:
        is_ok: how the process ended. What it has not judged by then has failed.
    """
    current, said, ends = test, defaultdict[str, list[str]](list), dict[str, str]()
    said[test] = []
    for line in lines:
        if mark := _MARK.match(line):
            current = mark[1] or current
            said[current] = said[current]
            continue
        # A test that prints without a line's end has its end behind that.
        if (at := line.find("--- ")) >= 0 and (end := _END.match(line, at + 4)):
            ends[end[2]] = _OUTCOMES[end[1]]
            said[end[2]] = said[end[2]]
            continue
        said[current].append(line)
    outcomes = {name: ends.get(name, "failed") for name in said}
    if not is_ok and "failed" not in outcomes.values():
        outcomes[test] = "failed"
    return {
        name: (outcome, "\n".join(said[name])[-ERROR_MAX:])
        for name, outcome in outcomes.items()
        if _counts(name, outcomes)
    }


def _counts(name: str, outcomes: Mapping[str, str]) -> bool:
    below = [outcome for each, outcome in outcomes.items() if each.startswith(f"{name}/")]
    return not below or (outcomes[name] == "failed" and "failed" not in below)


def _make_queues(served: _Served) -> None:
    """Make the queues that the tests expect to be there."""
    client = ServiceBusAdministrationClient.from_connection_string(
        served.connection_string(addresses.RULE), connection_verify=str(served.bridge.ca)
    )
    with client:
        client.create_queue("testQueue", lock_duration="PT5M")
        with suppress(HttpResponseError):
            client.create_queue(
                "testQueueWithSessions", lock_duration="PT5M", requires_session=True
            )


def _environment(served: _Served) -> Mapping[str, str]:
    """Return what a live run reads: the namespace under all names that tests have for one.

    The names that begin with `PARITY_` are for `credential.go`.
    """
    host, string = f"{addresses.LOCAL}:{served.door.port}", served.connection_string
    return {
        "AZURE_RECORD_MODE": "live",
        "SSL_CERT_FILE": str(trusted(served.bridge, served.issuer)),
        "PARITY_AUTHORITY": served.issuer.url,
        "PARITY_TENANT": TENANT,
        "PARITY_APPLICATION": APPLICATION.id,
        "PARITY_SECRET": APPLICATION.secret,
        "SERVICEBUS_ENDPOINT": host,
        "SERVICEBUS_ENDPOINT_PREMIUM": host,
        "SERVICEBUS_CONNECTION_STRING": string(addresses.RULE),
        "SERVICEBUS_CONNECTION_STRING_PREMIUM": string(addresses.RULE),
        "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": string("no-manage"),
        "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": string("send"),
        "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": string("listen"),
    }


def _go(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["go", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"parity: go {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout
