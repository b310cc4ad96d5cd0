"""How Windows reads what our scripts say: cmd.exe, PowerShell, and a C program's own arguments.

Written after their documented rules, phase by phase, and strict: whatever our writers never need
(pipes, redirections of commands, variables of PowerShell) is an error here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SPECIAL = set("&|<>()")
LINE_LENGTH_MAX = 8_191


def arguments(line: str) -> list[str]:
    """Split a command line as the C runtime does (since 2008): backslashes, quotes, `""`."""
    words: list[str] = []
    position, end = 0, len(line)
    while position < end:
        if line[position] in " \t":
            position += 1
            continue
        word, is_quoted = "", False
        while position < end and (is_quoted or line[position] not in " \t"):
            slashes = 0
            while position < end and line[position] == "\\":
                slashes, position = slashes + 1, position + 1
            if position < end and line[position] == '"':
                word += "\\" * (slashes // 2)
                position += 1
                if slashes % 2:
                    word += '"'
                elif is_quoted and position < end and line[position] == '"':
                    word, position = word + '"', position + 1
                else:
                    is_quoted = not is_quoted
            else:
                word += "\\" * slashes
                if not slashes:
                    word, position = word + line[position], position + 1
        words.append(word)
    return words


@dataclass
class Cmd:
    """A batch file's run: what it calls, and the files it writes with `echo`."""

    variables: dict[str, str] = field(default_factory=lambda: {"TEMP": "T", "RANDOM": "7"})
    files: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[list[str], str | None]] = field(default_factory=list)

    def run(self, script: str) -> Cmd:
        """Run a script of our writer, every line of it."""
        assert script.endswith("\r\n")
        lines = script.removesuffix("\r\n").split("\r\n")
        assert not any("\n" in line or "\r" in line for line in lines)
        assert lines[0] == "@echo off"
        for line in lines[1:]:
            assert len(line) <= LINE_LENGTH_MAX
            self._line(line)
        return self

    def _line(self, line: str) -> None:
        text = self._without_carets(self._expanded(line))
        if not text or text == "setlocal DisableDelayedExpansion":
            return
        if match := re.fullmatch(r'set "(\w+)=(.*)"', text):
            self.variables[match[1]] = match[2]
        elif match := re.fullmatch(r'(>>?)"([^"]+)" echo (.+)', text):
            self._check(match[3])
            old = self.files.get(match[2], "") if match[1] == ">>" else ""
            self.files[match[2]] = old + match[3] + "\r\n"
        elif match := re.fullmatch(r'del "([^"]+)"', text):
            del self.files[match[1]]
        else:
            assert text.startswith("call "), text
            self._call(text.removeprefix("call ").removesuffix(" || exit /b 1"))

    def _call(self, command: str) -> None:
        """`call` doubles carets, expands once more, and reads the line once more."""
        again = self._expanded(command.replace("^", "^^"))
        words = arguments(self._without_carets(again))
        self._check(self._without_carets(again))
        file = words[-1] if words[-1] in self.files else None
        self.calls.append((words[:-1] if file else words, self.files[file] if file else None))

    def _expanded(self, line: str) -> str:
        found, position = "", 0
        while position < len(line):
            if line[position] != "%":
                found, position = found + line[position], position + 1
            elif line.startswith("%%", position):
                found, position = found + "%", position + 2
            else:
                end = line.index("%", position + 1)
                found += self.variables[line[position + 1 : end]]
                position = end + 1
        return found

    @staticmethod
    def _without_carets(line: str) -> str:
        """Outside quotes a caret only escapes the next character."""
        found, is_quoted, position = "", False, 0
        while position < len(line):
            char = line[position]
            if char == '"':
                is_quoted = not is_quoted
            if char == "^" and not is_quoted:
                position += 1
                char = line[position]
            found, position = found + char, position + 1
        return found

    @staticmethod
    def _check(line: str) -> None:
        """Nothing outside quotes may mean something to cmd.exe."""
        is_quoted = False
        for char in line:
            is_quoted = is_quoted != (char == '"')
            assert is_quoted or char not in SPECIAL, line


def powershell(script: str) -> list[tuple[list[str], str | None]]:
    """Return what a PowerShell script calls, with the document that it hands over in a file."""
    calls: list[tuple[list[str], str | None]] = []
    document: str | None = None
    lines = iter(script.splitlines())
    assert "$PSNativeCommandArgumentPassing = 'Legacy'" in script
    for line in lines:
        if line.startswith("Set-Content ") and line.endswith("@'"):
            held: list[str] = []
            while (text := next(lines)) != "'@":
                held.append(text)
            document = "\n".join(held)
        elif line.startswith("rabbitmqctl"):
            command = line.removesuffix("; if ($LASTEXITCODE) { exit $LASTEXITCODE }")
            has_file = command.endswith(" $definitions")
            words = _powershell_words(command.removesuffix(" $definitions"))
            calls.append((_through_batch_file(words), document if has_file else None))
        else:
            assert not line or line.startswith(("$", "Remove-Item ")), line
    return calls


def _powershell_words(line: str) -> list[str]:
    """Bare words and single-quoted ones; every kind of single quote is one, two of them are one."""
    quotes = "'\u2018\u2019\u201a\u201b"
    doubled = tuple(quotes)
    words, position = [], 0
    while position < len(line):
        if line[position] == " ":
            position += 1
        elif line[position] in quotes:
            word, position = "", position + 1
            while line[position] not in quotes or line[position + 1 : position + 2] in doubled:
                position += line[position] in quotes
                word, position = word + line[position], position + 1
            words.append(word)
            position += 1
        else:
            match = re.compile(r"[A-Za-z0-9_./-]+").match(line, position)
            assert match is not None, line[position:]
            words.append(match[0])
            position = match.end()
    return words


def needs_quotes(word: str, *, is_new: bool) -> bool:
    """Whether legacy passing puts quotes around a word: for white space outside of any.

    From version 6 on it overlooks a quote that follows a backslash.
    """
    is_quoted, previous = False, ""
    for char in word:
        if char == '"' and not (is_new and previous == "\\"):
            is_quoted = not is_quoted
        elif char.isspace() and not is_quoted:
            return True
        previous = char
    return False


def _through_batch_file(words: list[str]) -> list[str]:
    """Legacy passing joins the words as they are; cmd.exe runs the batch file; C splits them."""
    line = " ".join(words)
    for word in words:
        assert not needs_quotes(word, is_new=False), word
        assert not needs_quotes(word, is_new=True), word
    assert "%" not in line
    Cmd._check(line)
    assert "^" not in re.sub(r'"[^"]*"', "", line)
    return arguments(line)
