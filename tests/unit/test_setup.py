"""How `make run` comes to a RabbitMQ, by stand-ins for the programs that it calls.

What cannot run on every machine (Docker, Homebrew, Debian's mirror) is replaced by scripts on PATH,
which note how they were called.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = ("sh", "dirname", "awk", "date", "cat", "readlink", "id", "touch", "sed", "head", "rm")


class Machine:
    """A copy of the set-up's scripts on a machine that has only what a test gives it.

    Attributes:
        folder: the project's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._calls = folder / "calls"
        shutil.copytree(ROOT / "docker", self.folder / "docker")
        keyring = folder / "keyring"
        for script in ("docker/setup/rabbitmq", "docker/serve"):
            path = self.folder / script
            path.write_text(path.read_text().replace(KEYRING, str(keyring)))
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None, name
            (self._programs / name).symlink_to(found)
        self._keyring = keyring
        self.has_rabbitmq("3.9.1")

    def has(self, name: str, script: str = "") -> None:
        """Put a program on PATH that notes its arguments, then runs a script."""
        path = self._programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._calls}\n{script}\n')
        path.chmod(0o755)

    def has_rabbitmq(self, version: str) -> None:
        """Have a RabbitMQ of a version installed."""
        home = self.folder.parent / "rabbitmq"
        shutil.rmtree(home, ignore_errors=True)
        (home / "plugins" / f"rabbit-{version}").mkdir(parents=True)
        (home / "sbin").mkdir()
        server = home / "sbin" / "rabbitmq-server"
        server.write_text("#!/bin/sh\n")
        server.chmod(0o755)
        link = self._programs / "rabbitmq-server"
        link.unlink(missing_ok=True)
        link.symlink_to(server)

    def has_debian(self, version: str) -> None:
        """Have it be a Debian whose newest RabbitMQ is of a version."""
        self._keyring.touch()
        self.has("apt-get")
        self.has("dpkg-deb")
        core = f"$3/root/usr/lib/rabbitmq/lib/rabbitmq_server-{version}/plugins/rabbit-{version}"
        self.has("python3", f'/bin/mkdir -p "{core}"')

    @property
    def calls(self) -> list[str]:
        """The calls of stand-ins since the last look."""
        if not self._calls.exists():
            return []
        lines = self._calls.read_text().splitlines()
        self._calls.unlink()
        return lines

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        """Run a script of the set-up; return its code and all that it says."""
        done = subprocess.run(
            ["/bin/sh", str(self.folder / script), *arguments],
            env={"PATH": str(self._programs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    def bring(self) -> tuple[int, str]:
        """Make sure that there is a RabbitMQ."""
        return self.run("docker/setup/rabbitmq")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a RabbitMQ that is too old, and nothing to get another one by."""
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["4.3.0", "4.10.2", "5.0.0"])
def test_the_machine_s_own_rabbitmq_is_taken(machine: Machine, version: str) -> None:
    """If it is new enough; nothing is said or fetched."""
    machine.has_debian("4.3.6")
    machine.has_rabbitmq(version)
    assert machine.bring() == (0, "")
    assert machine.calls == []


def test_on_debian_its_newest_is_unpacked_once(machine: Machine) -> None:
    """With the seconds, and what it is for; the next time nothing is said or fetched."""
    machine.has_debian("4.3.7")
    code, said = machine.bring()
    assert code == 0
    assert "this machine's own is 3.9.1" in said
    assert "RabbitMQ 4.3.7 is there, for development, not for production: " in said
    assert "newer than" not in said
    (call,) = machine.calls
    assert call.startswith("python3 docker/setup/unpack.py sid ")
    assert machine.bring() == (0, "")
    assert machine.calls == []


def test_what_is_newer_than_the_tests_know_is_named_and_tried(machine: Machine) -> None:
    """Debian's newest moves on."""
    machine.has_debian("4.5.0")
    code, said = machine.bring()
    assert code == 0
    assert "RabbitMQ 4.5.0 is newer than 4.3, the newest that was tried" in said


def test_what_is_older_than_wanted_is_refused(machine: Machine) -> None:
    """In one sentence; it counts as missing the next time, too."""
    machine.has_debian("3.10.8")
    for _ in range(2):
        code, said = machine.bring()
        assert code == 1
        assert "what Debian has is RabbitMQ 3.10.8, and 4.3 is needed" in said
    assert machine.run("docker/setup/rabbitmq", "--check") == (1, "")


def test_elsewhere_docker_has_it(machine: Machine) -> None:
    """Its image is pulled once; RabbitMQ itself runs in a container, so `--check` finds none."""
    pulled = machine.folder / "pulled"
    machine.has("docker", f'case "$1" in image) [ -e {pulled} ];; pull) : > {pulled};; esac')
    image = (ROOT / "docker" / "rabbitmq-image").read_text().strip()
    code, said = machine.bring()
    assert code == 0
    assert f"docker pull {image}" in said
    assert "Docker has RabbitMQ's image: " in said
    assert f"docker pull --quiet {image}" in machine.calls
    assert machine.bring() == (0, "")
    assert machine.run("docker/setup/rabbitmq", "--check") == (1, "")


def test_on_macos_homebrew_installs_it(machine: Machine) -> None:
    """Also beside a Docker that does not run."""
    machine.has("docker", "exit 1")
    has_homebrew(machine, "4.3.5")
    code, said = machine.bring()
    assert code == 0
    assert "Homebrew has installed RabbitMQ 4.3.5: " in said
    assert "brew install --quiet rabbitmq" in machine.calls


@pytest.mark.parametrize("version", ["4.2.9", ""])
def test_what_homebrew_has_is_looked_at_too(machine: Machine, version: str) -> None:
    """It may keep an older one that is there."""
    has_homebrew(machine, version)
    code, said = machine.bring()
    assert code == 1
    assert f"what Homebrew has is RabbitMQ {version or 'of no known version'}, and 4.3" in said
    assert "brew upgrade rabbitmq" in said


def has_homebrew(machine: Machine, version: str) -> None:
    """A Homebrew that installs this version; "": nothing."""
    place = machine.folder / "homebrew"
    (place / "plugins").mkdir(parents=True)
    if version:
        (place / "plugins" / f"rabbit-{version}").mkdir()
    machine.has("brew", f'[ "$1" != --prefix ] || echo {place}')


def test_where_there_is_nothing_a_sentence_says_what_to_do(machine: Machine) -> None:
    """One line, and code 1."""
    code, said = machine.bring()
    assert code == 1
    (line,) = said.splitlines()
    assert "RabbitMQ 4.3 is missing (this machine's own is 3.9.1)" in line
    assert "BUSBRIDGE_RABBITMQ_URL" in line


def test_a_rabbitmq_in_docker_runs_as_long_as_the_bridge(machine: Machine) -> None:
    """The bridge is told its ports and gets its flags; its exit code is the command's."""
    ports = 'port) case "$3" in 5672*) echo 127.0.0.1:4001;; *) echo 127.0.0.1:4002;; esac;;'
    machine.has("docker", f'case "$1" in {ports} esac')
    programs = machine.folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    bridge = programs / "busbridge"
    bridge.write_text(
        '#!/bin/sh\necho "$* $BUSBRIDGE_RABBITMQ_URL $BUSBRIDGE_MANAGEMENT_URL"\nexit 7\n'
    )
    bridge.chmod(0o755)
    code, said = machine.run("docker/serve", "--port", "5")
    assert code == 7
    urls = "amqp://guest:guest@127.0.0.1:4001/ http://guest:guest@127.0.0.1:4002"
    assert f"serve --port 5 {urls}\n" in said
    calls = [call.split()[1] for call in machine.calls]
    assert calls[0] == "rm"
    assert calls.index("run") < calls.index("exec")
    assert calls[-2:] == ["stop", "rm"]


def test_make_run_needs_none_of_the_tests() -> None:
    """Neither its scripts nor the bridge's packages name anything below `tests`."""
    scripts = [ROOT / "docker" / "serve"]
    names = ("python", "rabbitmq", "debian.py", "unpack.py", "compiled", "compiler", "apt")
    scripts += [ROOT / "docker" / "setup" / name for name in names]
    for script in scripts:
        assert "tests/" not in script.read_text(), script
    for package in ("bridge", "policies"):
        for path in (ROOT / package).rglob("*.py"):
            assert "from tests" not in path.read_text(), path
