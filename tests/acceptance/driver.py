"""An SDK's scenario program: its command, and what it printed, scenario by scenario."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

COMMON_SCENARIOS = (
    "single_send",
    "batch_send",
    "abandon",
    "abandon_with_properties",
    "dead_letter",
    "dead_letter_without_reason",
    "defer",
    "peek",
    "close_with_unsettled",
    "settle_after_close",
    "renew_lock",
    "lock_lost",
    "schedule",
    "schedule_cancel",
    "cancel_unknown",
    "scheduled_by_property",
    "receive_and_delete",
    "time_to_live",
    "types",
    "large",
    "too_large",
    "wrong_key",
    "unknown_entity",
    "session_accept",
    "session_next",
    "session_state",
    "session_lock",
    "session_defer",
)
"""What every client is asked to do."""


@dataclass(frozen=True)
class Outcome:
    """How one scenario ended."""

    is_ok: bool
    detail: str


def java_program(name: str, *options: str, of: str = "java") -> list[str]:
    """Build the Java programs of a folder; return the command of one."""
    folder = HERE / of
    build(folder, tool("mvn", "Maven and JDK 17 are needed"), "-q", "-B", "process-classes")
    classes = f"{folder / 'target' / 'classes'}:{folder / 'target' / 'lib'}/*"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = tool("java", "JDK 17 is needed")
    return [java, quiet, *options, "-cp", classes, f"scenarios.{name}"]


def java_trust_store(certificate: Path, folder: Path) -> list[str]:
    """Make a store with a certificate; return the options of a program that trusts it."""
    store, keytool = folder / "store.p12", tool("keytool", "JDK 17 is needed")
    importing = ["-importcert", "-noprompt", "-alias", "busbridge", "-file", str(certificate)]
    kept = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run([keytool, *importing, *kept], check=True)
    property_of = "-Djavax.net.ssl.trustStore"
    return [f"{property_of}={store}", f"{property_of}Password=changeit"]


def go_program(name: str, package: str = ".") -> list[str]:
    """Build a Go program; return its command."""
    folder = HERE / "go"
    program = str(folder / "target" / name)
    build(folder, tool("go", "Go 1.23 or newer is needed"), "build", "-o", program, package)
    return [program]


def dotnet_program(name: str) -> list[str]:
    """Build a C# program of the tests; return its command."""
    return dotnet_built(HERE / "dotnet" / name)


def dotnet_built(folder: Path) -> list[str]:
    """Build the C# program of a folder, which is named after it; return its command.

    DOTNET_KIT names a program that compiles and runs a folder of C# (`KIT TOOLS FOLDER ARGUMENTS`)
    where .NET's own SDK is not installed.
    """
    kit = os.environ.get("DOTNET_KIT")
    if kit:
        command = [kit, str(HERE.parents[1] / ".busbridge" / "dotnet"), str(folder)]
        build(folder, "env", "COMPILE=only", *command)
        return command
    dotnet = tool("dotnet", ".NET 10 is needed, or DOTNET_KIT")
    build(folder, dotnet, "build", "--nologo", "--output", "target/out")
    return [dotnet, str(folder / "target" / "out" / f"{folder.name}.dll")]


def node_program(script: str, folder: str = "node") -> list[str]:
    """Return the command of a JavaScript program."""
    modules = HERE / folder / "node_modules" / "@azure" / "service-bus"
    assert modules.is_dir(), f"run `npm ci` in {folder} (make test, or make test-sdks, does)"
    return [tool("node", "make test sets Node up"), str(HERE / folder / script)]


def python_program(script: str, environment: str) -> list[str]:
    """Return the command of a Python program in an environment of its own (`make setup`)."""
    python = HERE.parents[1] / environment / "bin" / "python"
    assert python.exists(), f"{environment} is missing: `make test` sets it up"
    return [str(python), str(HERE / "python" / script)]


def tool(name: str, why: str) -> str:
    """Return the path of a program, or fail with what to install."""
    found = shutil.which(name)
    if found is None:
        raise AssertionError(f"{name} is missing: {why}")
    return found


def build(folder: Path, *command: str) -> None:
    """Build a scenario program, one test process at a time; fail with what the build said."""
    (folder / "target").mkdir(exist_ok=True)
    with (folder / "target" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-4000:]}"


def run_scenarios(
    command: Sequence[str],
    connection_string: str,
    queue: str,
    *,
    timeout_s: int = 400,
    **environment: str,
) -> Mapping[str, Outcome]:
    """Run a scenario program and return the outcome of each of its scenarios."""
    done = subprocess.run(
        [*command, connection_string, queue],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **environment},
    )
    outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            printed = json.loads(line)
            outcomes[printed["scenario"]] = Outcome(printed["ok"], printed["detail"])
    assert outcomes, f"{command[0]} printed no scenario:\n{done.stdout}\n{done.stderr[-4000:]}"
    return outcomes


def run_side_by_side(
    command: Sequence[str], connection_string: str, queues: Sequence[str]
) -> Mapping[str, Outcome]:
    """Run a scenario program once for each queue, all at a time: each has a share of the scenarios.

    SHARE=1/3 tells a program to run every third of its scenarios, from the second one on.
    """

    def run(place: int) -> Mapping[str, Outcome]:
        share = f"{place}/{len(queues)}"
        return run_scenarios(command, connection_string, queues[place], SHARE=share)

    with ThreadPoolExecutor(len(queues)) as at_once:
        found = at_once.map(run, range(len(queues)))
        return {name: outcome for each in found for name, outcome in each.items()}
