"""What the wheel holds and asks for: the library alone, and what needs an extra."""

from __future__ import annotations

import ast
import importlib
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONFIG = str(ROOT / "docs" / "examples" / "Config.json")
ALIASES = ROOT / "bridge" / "busbridge"

REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
{then}
"""


def modules_of(extra: str) -> set[str]:
    """Return the packages that an extra brings, as they are imported."""
    given = PROJECT["project"]["optional-dependencies"][extra]
    return {Requirement(text).name.replace("-", "_") for text in given}


def run_without(refused: set[str], then: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has no such packages."""
    program = REFUSING.format(refused=sorted(refused), then=then)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )


def library_modules() -> list[str]:
    """Return the names of all modules of the library."""
    files = (ROOT / "bridge" / "client").rglob("*.py")
    return sorted(
        ".".join(each.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for each in files
    )


def test_the_library_needs_nothing_of_the_bridges_packages() -> None:
    """All its modules are imported by a Python that lacks what the extras bring."""
    refused = modules_of("serve") - {"yarl"} | modules_of("fast") | {"azure", "pytest"}
    # yarl comes with aio-pika; the library itself does not name it (the next test).
    then = f"import importlib\nfor name in {library_modules()!r}: importlib.import_module(name)"
    done = run_without(refused, then)
    assert done.returncode == 0, done.stderr


def test_the_library_imports_only_what_it_asks_for() -> None:
    """Each package that it names is a dependency of the wheel."""
    given = {
        Requirement(text).name.replace("-", "_") for text in PROJECT["project"]["dependencies"]
    }
    named: set[str] = set()
    for file in (ROOT / "bridge" / "client").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                named |= {each.name.partition(".")[0] for each in node.names}
    optional = {"azure"}  # its errors are those of azure-core where that is installed
    assert named - set(sys.stdlib_module_names) - optional - {"bridge"} == given


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a Python that has the library's packages alone."""
    argv = f"sys.argv[1:] = {list(arguments)!r}"
    then = f"{argv}\nfrom bridge.cli.command import main\nsys.exit(main())"
    return run_without(modules_of("serve") | modules_of("fast") | modules_of("tools"), then)


@pytest.mark.parametrize(
    "arguments",
    [("serve",), ("sidecar",), ("trust",), ("policies", "adopt", "--rabbitmq-url", "amqp://h/")],
    ids=" ".join,
)
def test_the_command_says_which_extra_is_missing(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, and with exit code 2, where something needs it."""
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert done.returncode == 2
    assert "pip install '.[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("ls",), ("show", "orders"), ("completion", "bash")], ids=" ".join
)
def test_the_commands_on_a_namespace_have_an_extra_of_their_own(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named in one sentence, with exit code 2."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = command(*arguments)
    assert done.returncode == 2
    assert "of the extra 'tools': pip install '.[tools]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_login_by_entra_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """azure-identity is not among what the commands need."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = ["profile", "add", "prod", "--entra", "one.example"]
    then = f"sys.argv[1:] = {arguments!r}\nfrom bridge.cli.command import main\nsys.exit(main())"
    done = run_without({"azure"}, then)
    assert done.returncode == 2
    assert "pip install '.[azure]'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--version",), "busbridge "),
        (("ls", "--help"), "--watch"),
        (("serve", "--help"), "--rabbitmq-url"),
        (("policies", "report", CONFIG), "orders"),
        (("policies", "generate", CONFIG, "--to", "definitions"), "$active"),
    ],
    ids=["version", "tool", "help", "report", "generate"],
)
def test_what_needs_no_extra_works_without(arguments: tuple[str, ...], says: str) -> None:
    """The version, every help, and what `policies` does with text."""
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


@pytest.mark.parametrize(
    "name",
    ["client", "client.aio", "client.exceptions", "client.management", "client.aio.management"],
)
def test_names_of_the_wheel_are_the_librarys(name: str) -> None:
    """`busbridge.client.ServiceBusClient` is `bridge.client.ServiceBusClient`, and so on."""
    place = ALIASES.joinpath(*name.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    alias = runpy.run_path(str(file))
    real = importlib.import_module(f"bridge.{name}")
    public = getattr(real, "__all__", [each for each in vars(real) if not each.startswith("_")])
    assert public
    assert all(alias[each] is getattr(real, each) for each in public if each != "annotations")


def test_each_public_module_has_a_name_of_the_wheel() -> None:
    """Typed modules are marked as typed, too."""
    found = {each.relative_to(ALIASES).as_posix() for each in ALIASES.rglob("*") if each.is_file()}
    assert "py.typed" in found
    assert (ROOT / "bridge" / "py.typed").exists()
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {
        "bridge/busbridge": "busbridge"
    }
