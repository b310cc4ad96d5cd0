"""Azure's tests of the Go module azservicebus, from the module as it is published.

The module is not changed. One package that its tests import, `credential` of `sdk/internal`, is
replaced by `credential.go`: it would ask Microsoft Entra for a token. Each test runs in a process
of its own, so that one that hangs or panics costs no other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker
from tests.parity import addresses
from tests.parity.score import Case
from tests.parity.serving import serving

VERSION = "v1.10.0"
TITLE = f"Go: azservicebus {VERSION}"
SDK = "github.com/Azure/azure-sdk-for-go/sdk"
MODULE, INTERNAL = f"{SDK}/messaging/azservicebus", f"{SDK}/internal"
PACKAGES = (".", "admin", "internal")
"""Those whose tests speak to a service; they hold tests that do not, too."""

TEST_S = 600
CREDENTIAL = Path(__file__).parent / "credential.go"


@dataclass(frozen=True)
class _Test:
    package: Path
    program: Path
    file: str
    name: str


def run(broker: Broker, folder: Path, workers: int, only: Sequence[str]) -> list[Case]:
    """Run the tests of all files, or of some; return what became of each."""
    module = _fetch(folder)
    tests = [test for test in _tests(module) if not only or test.file in only]
    bridges: SimpleQueue[Bridge] = SimpleQueue()

    def judge(test: _Test) -> Case:
        bridge = bridges.get()
        try:
            return Case(test.file, test.name, _outcome(test, bridge, folder))
        finally:
            bridges.put(bridge)

    with ExitStack() as stack:
        for number in range(min(workers, len(tests))):
            bridge = stack.enter_context(serving(broker, folder / f"bridge-{number}"))
            _make_queues(bridge)
            bridges.put(bridge)
        return list(stack.enter_context(ThreadPoolExecutor(workers)).map(judge, tests))


def _fetch(folder: Path) -> Path:
    """Return the module, with a go.mod beside its own that names our `credential`."""
    if shutil.which("go") is None:
        raise SystemExit("parity: Go 1.23 or newer is needed")
    module, internal = folder / "azservicebus", folder / "internal"
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


def _outcome(test: _Test, bridge: Bridge, folder: Path) -> str:
    command = [str(test.program), "-test.v", f"-test.timeout={TEST_S}s"]
    done = subprocess.run(
        [*command, f"-test.run=^{test.name}$"],
        cwd=test.package,
        env={**os.environ, **_environment(bridge)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        (folder / f"{test.name}.log").write_text(done.stdout + done.stderr)
        return "failed"
    return "skipped" if f"\n--- SKIP: {test.name} " in done.stdout else "passed"


def _make_queues(bridge: Bridge) -> None:
    """Make the queues that the tests expect to be there."""
    client = ServiceBusAdministrationClient.from_connection_string(
        _connection_string(bridge, addresses.RULE), connection_verify=str(bridge.ca)
    )
    with client:
        client.create_queue("testQueue", lock_duration="PT5M")
        with suppress(HttpResponseError):
            client.create_queue(
                "testQueueWithSessions", lock_duration="PT5M", requires_session=True
            )


def _connection_string(bridge: Bridge, rule: str) -> str:
    host = f"{addresses.LOCAL}:{bridge.port}"
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={rule};SharedAccessKey={rule}"


def _environment(bridge: Bridge) -> Mapping[str, str]:
    """Return what a live run reads: the namespace under all names that tests have for one."""
    host = f"{addresses.LOCAL}:{bridge.port}"
    string = partial(_connection_string, bridge)
    return {
        "AZURE_RECORD_MODE": "live",
        "SSL_CERT_FILE": str(bridge.ca),
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
