"""Commands as a script for PowerShell.

PowerShell's versions pass arguments to native programs differently. 5.1 to 7.2 drop double quotes
inside an argument. 7.3 keeps them, but not for batch files, and `rabbitmqctl` is a batch file on
Windows. `$PSNativeCommandArgumentPassing = 'Legacy'` makes every version pass a word on as 5.1
does. So each word is quoted twice: for PowerShell in single quotes, and inside them for the command
line of Windows, where `""` is a quote. The inner quotes also hide `|`, `&` and `^` from cmd.exe,
which runs the batch file. Only ASCII is written: 5.1 reads a script in its machine's code page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from policies.writers.script import Command, Unquotable, in_windows_quotes

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*|--?[a-z-]+|[0-9]+|/")
_CHECK = "if ($LASTEXITCODE) { exit $LASTEXITCODE }"


def render(commands: Iterable[Command]) -> str:
    """Return a script that stops at the first command that fails.

    Raises:
        Unquotable: an argument holds characters that cmd.exe or PowerShell would change.
    """
    lines = [
        "$ErrorActionPreference = 'Stop'",
        "$PSNativeCommandUseErrorActionPreference = $false",
        "$PSNativeCommandArgumentPassing = 'Legacy'",
        "",
    ]
    lines += [line for command in commands for line in _lines(command)]
    return "\n".join(lines) + "\n"


def _lines(command: Command) -> list[str]:
    line = " ".join(quote(word) for word in command.words)
    check = "" if command.may_fail else f"; {_CHECK}"
    if command.document is None:
        return [line + check]
    return [
        "$definitions = [System.IO.Path]::GetTempFileName()",
        "Set-Content -LiteralPath $definitions -Encoding ascii -Value @'",
        json.dumps(command.document, indent=1),
        "'@",
        f"{line} $definitions{check}",
        "Remove-Item -LiteralPath $definitions",
    ]


def quote(word: str) -> str:
    """Return a word quoted so that PowerShell passes it to a native program unchanged."""
    if _BARE.fullmatch(word):
        return word
    if not word.isascii() or re.search(r"[%!\r\n\0]", word):
        raise Unquotable(f"cmd.exe, which runs rabbitmqctl.bat, would change {word!r}.")
    if re.search(r'\\"', word) and re.search(r"\s", word):
        raise Unquotable(
            f"PowerShell 7 takes {word!r} apart: it overlooks a quote after a backslash."
        )
    return "'\"" + in_windows_quotes(word).replace("'", "''") + "\"'"
