"""Our scripts for Windows, run or read by others' code: Wine's cmd.exe, a grammar of PowerShell.

Needs wine and x86_64-w64-mingw32-gcc, and for PowerShell the packages tree-sitter and
tree-sitter-powershell. `python -m pytest -m windows` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.writers import cmd, powershell
from policies.writers.script import Command, Unquotable
from tests.unit.policies.test_writers import AWKWARD, DOCUMENT
from tests.unit.policies.windows import arguments, needs_quotes

COMPILER = "x86_64-w64-mingw32-gcc"
pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(
        shutil.which("wine") is None or shutil.which(COMPILER) is None,
        reason=f"needs wine and {COMPILER}",
    ),
]

BATCH_FILE = """@echo off
setlocal
set TDP0=%~dp0
set STAR=%*
setlocal enabledelayedexpansion
"!TDP0!argv.exe" -extra !STAR!
"""
"""What the `rabbitmqctl.bat` of RabbitMQ for Windows does with its arguments."""

Call = tuple[list[str], str]
"""The words that the program got, and the text of the file that the last one names."""


class Windows:
    """A folder with `rabbitmqctl.bat`, and what runs there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        source = Path(__file__).with_name("argv.c")
        subprocess.run([COMPILER, "-o", folder / "argv.exe", source], check=True)
        (folder / "rabbitmqctl.bat").write_bytes(BATCH_FILE.replace("\n", "\r\n").encode())
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "WINEPREFIX": str(folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=",
            "ARGV_LOG": f"Z:{folder}/log",
            "LAUNCH": f"Z:{folder}/launch",
        }
        (folder / "prefix").mkdir()
        subprocess.run(
            ["wineserver", "-p"], env=self._environment, check=True
        )  # not a start each time

    def run_cmd(self, script: str) -> list[Call]:
        """Run a batch file."""
        (self._folder / "script.cmd").write_bytes(script.encode())
        return self._run("cmd", "/c", "script.cmd")

    def launch(self, line: str) -> list[Call]:
        """Run a command line as CreateProcess does, which gives a batch file to cmd.exe."""
        (self._folder / "launch").write_text(line)
        return self._run("argv.exe")

    def close(self) -> None:
        """End Wine's own processes."""
        subprocess.run(["wineserver", "-k"], env=self._environment, check=False)

    def _run(self, *words: str) -> list[Call]:
        log = self._folder / "log"
        log.write_bytes(b"")
        subprocess.run(
            ["wine", *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        found = []
        for record in log.read_text().split("\x1e")[:-1]:
            line, text, _ = record.split("\0")
            _, extra, *rest = arguments(line)
            assert extra == "-extra"
            found.append((rest, text))
        return found


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> object:
    """One Wine for all tests."""
    made = Windows(tmp_path_factory.mktemp("windows"))
    yield made
    made.close()


def quotable(quote: Callable[[str], str]) -> list[str]:
    """The words that a script may hold."""
    found = []
    for word in AWKWARD:
        try:
            quote(word)
        except Unquotable:
            continue
        found.append(word)
    assert len(found) > 20
    return found


def test_wines_cmd_gives_every_word_unchanged(windows: Windows) -> None:
    """Each word alone, and the document through its file."""
    words = quotable(cmd.quote)
    commands = [Command(words=("rabbitmqctl", word, "end"), may_fail=True) for word in words]
    commands.append(Command(words=("rabbitmqctl", "import_definitions"), document=DOCUMENT))
    *calls, (last, text) = windows.run_cmd(cmd.render(commands))
    assert [given for given, _ in calls] == [[word, "end"] for word in words]
    assert last[0] == "import_definitions"
    assert json.loads(text) == DOCUMENT


@pytest.mark.parametrize("is_new", [False, True], ids=["5.1", "7"])
def test_powershell_gives_every_word_unchanged(windows: Windows, is_new: bool) -> None:
    """Read by a grammar of PowerShell, joined as its versions do, run by Wine."""
    words = quotable(powershell.quote)
    script = powershell.render([Command(words=("rabbitmqctl", word, "end")) for word in words])
    lines = [_command_line(each, is_new) for each in _native_commands(script)]
    got = [windows.launch(line) for line in lines]
    assert got == [[([word, "end"], "")] for word in words]


def test_the_grammar_of_powershell_takes_a_whole_script() -> None:
    """The document is a verbatim here-string in it."""
    script = powershell.render([Command(words=("rabbitmqctl", "import"), document=DOCUMENT)])
    root = _tree(script)
    assert not root.has_error
    (text,) = [node.text.decode() for node in _all(root, "verbatim_here_string_characters")]
    assert json.loads(text.removeprefix("@'\n").removesuffix("\n'@")) == DOCUMENT


def _tree(script: str):  # type: ignore[no-untyped-def]
    grammar = pytest.importorskip("tree_sitter_powershell")
    tree_sitter = pytest.importorskip("tree_sitter")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    return parser.parse(script.encode()).root_node


def _all(node, kind: str):  # type: ignore[no-untyped-def]
    if node.type == kind:
        yield node
    for child in node.children:
        yield from _all(child, kind)


def _native_commands(script: str) -> list[list[str]]:
    """The words of each call of `rabbitmqctl`."""
    root = _tree(script)
    assert not root.has_error
    found = []
    for command in _all(root, "command"):
        assert command.children[0].type == "command_name"
        assert command.children[0].text == b"rabbitmqctl"
        words = []
        for node in command.children[1].children:
            text = node.text.decode()
            if node.type == "command_argument_sep":
                continue
            if text[0] == "'":
                assert len(list(_all(node, "verbatim_string_characters"))) == 1, text
                words.append(re.sub("(['\u2018\u2019\u201a\u201b]){2}", r"\1", text[1:-1]))
            else:
                assert node.type in ("generic_token", "command_parameter"), (node.type, text)
                words.append(text)
        found.append(words)
    return found


def _command_line(words: list[str], is_new: bool) -> str:
    joined = [f'"{word}"' if needs_quotes(word, is_new=is_new) else word for word in words]
    return " ".join(["rabbitmqctl.bat", *joined])
