"""What every command's help has, and that what it shows works as it stands."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.cli.main import COMMANDS, main, parser_of
from bridge.commands.errors import WrongInput
from bridge.commands.parser import NO_RIGHT, CommandParser
from bridge.commands.rule_options import filter_in
from bridge.model.entity import CorrelationFilter, Right
from tests.documentation.command_reference import leaves, tools

TOOLS = {parser.prog: parser for parser in tools()}


@pytest.mark.parametrize("prog", TOOLS)
def test_a_help_has_two_examples_and_the_needed_right(prog: str) -> None:
    """The right by Azure's name, with what it is needed on."""
    parser = TOOLS[prog]
    assert len(parser.examples) == 2
    names = "|".join(right.value for right in Right)
    assert parser.right == NO_RIGHT or re.fullmatch(
        rf"({names})( and ({names}))* on .+", parser.right
    )
    text = parser.format_help()
    assert all(f"  {example}\n" in text for example in parser.examples)
    assert f"needed right: {parser.right}\n" in text


WHOLE = parser_of()
EVERY = {parser.prog: parser for parser in leaves(WHOLE)}


@pytest.mark.parametrize("prog", EVERY)
def test_each_example_is_a_command_line_of_its_command(prog: str) -> None:
    """Two at least, of every command; up to a pipe or a redirection, which are the shell's."""
    text = EVERY[prog].format_help().partition("\nexamples:\n")[2]
    examples = [each.strip() for each in text.splitlines() if "busbridge " in each]
    assert len(examples) >= 2
    for example in examples:
        lexer = shlex.shlex(example, posix=True, punctuation_chars="|<>")
        lexer.whitespace_split = True
        words = list(lexer)
        starts = [at for at, word in enumerate(words) if word == "busbridge"]
        words = words[starts[-1] + 1 :]
        ends = [at for at, word in enumerate(words) if word[0] in "|<>"]
        WHOLE.parse_args(words[: min(ends, default=len(words))])
    if prog in TOOLS:
        assert all(f"{prog} " in f"{example} " for example in examples)


NUMBERS = [
    (prog, action.option_strings[0], action.dest)
    for prog, parser in TOOLS.items()
    for action in parser._actions
    if action.type is float
]


@pytest.mark.parametrize(("prog", "option", "name"), NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf"])
def test_a_time_or_rate_that_is_no_number_above_zero_is_refused_by_its_option(
    prog: str, option: str, name: str, value: str
) -> None:
    """Before anything is done; one that is not given is none."""
    parser = TOOLS[prog]
    with pytest.raises(WrongInput, match=f"^{option} is above 0, and finite.$"):
        parser.check_numbers(argparse.Namespace(**{name: float(value)}))
    parser.check_numbers(argparse.Namespace(**{name: 0.5}))
    parser.check_numbers(argparse.Namespace(**{name: None}))


def test_the_commands_have_such_options() -> None:
    """Intervals, waits, rates."""
    options = {(prog.removeprefix("busbridge "), option) for prog, option, _ in NUMBERS}
    assert options >= {("top", "--interval"), ("bench", "--seconds"), ("ls", "--watch")}
    assert options >= {("send", "--rate"), ("receive", "--wait"), ("purge", "--rate")}


def test_a_wrong_number_ends_a_command_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By exit code 2."""
    assert main(["top", "--interval", "nan"]) == 2
    assert capsys.readouterr().err == "busbridge: --interval is above 0, and finite.\n"


def test_a_usage_is_one_line_and_an_unknown_option_has_the_most_similar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A user reads the error, and not twenty options."""
    with pytest.raises(SystemExit, match="2"):
        main(["create", "queue", "orders", "--lock-durtion", "PT1M"])
    assert capsys.readouterr().err == (
        "usage: busbridge create queue [options] NAME\n"
        "busbridge create queue: error: there is no option --lock-durtion (did you mean "
        "--lock-duration?), PT1M\n"
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("crate", "queue", "q"), "create"),
        (("create", "queu", "q"), "queue"),
        (("relay", "chek", "relay.toml"), "check"),
        (("relay", "intit", "relay.toml"), "init"),
    ],
)
def test_an_unknown_command_or_kind_has_the_most_similar(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], meant: str
) -> None:
    """Behind the list of all."""
    with pytest.raises(SystemExit, match="2"):
        main(list(words))
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


def test_a_relays_file_may_be_called_nearly_as_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If it is there it is meant; and a relay wants a file or a command."""
    monkeypatch.chdir(tmp_path)
    Path("checks").write_text("")
    assert main(["relay", "checks"]) == 2
    assert "checks:1:1: There are no sides" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["relay"])
    assert "required: FILE|VERB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("queue", "q", "--lock-duration", "30"), "'30': a duration is ISO 8601"),
        (("queue", "q", "--max-delivery-count", "many"), "'many': it is a whole number"),
        (("queue", "q", "--status", "Off"), "'Off': it is one of Active, Disabled"),
        (("queu", "q"), "argument KIND: invalid choice: 'queu'"),
    ],
)
def test_a_wrong_value_is_named_before_anything_is_asked_for(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    """Exit code 2, as everywhere."""
    with pytest.raises(SystemExit, match="2"):
        main(["create", *words])
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create", "subscription", "events"), "write TOPIC/Subscriptions/NAME"),
        (("create", "queue", "a/Subscriptions/b"), "'a/Subscriptions/b' is no name of a queue"),
        (("show", "q/$DeadLetterQueue"), "name the entity itself"),
        (("update", "queue", "q"), "Nothing is to be changed"),
        (("create", "rule", "t", "s", "r", "--parameter", "@a=1"), "--parameter is of --filter"),
        (("create", "rule", "t", "s", "r", "--property", "a"), "'a' is no NAME=VALUE"),
        (("create", "rule", "t", "s", "r", "--property", 'a={"lnog": 5}'), "known types are"),
        (("create", "rule", "t", "s", "r", "--property", "a=[1]"), "[1] is no value of a type"),
        (("create", "rule", "t", "s", "r", "--correlation", "Colour=red"), "no field 'Colour'"),
        (("create", "rule", "t", "s", "r?"), "name 'r?' is not valid"),
    ],
)
def test_a_wrong_name_or_rule_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    reason: str,
) -> None:
    """With exit code 2, and no namespace is asked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.startswith("busbridge: ")
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("red", "red"),
        ("5", 5),
        ('"5"', "5"),
        ("true", True),
        ("2.5", 2.5),
        ('{"long": 5}', 5),
        ('{"duration": "PT1M"}', timedelta(minutes=1)),
        ("", ""),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        pytest.param(deep := "[" * 100_000, deep, id="deep"),
    ],
)
def test_a_value_that_is_json_is_read_as_such(text: str, value: object) -> None:
    """As `send` reads that of a property: the filter's 5 is the message's 5."""
    words = ["create", "rule", "t", "s", "r", "--property", f"a={text}"]
    found = filter_in(parser_of(("create",)).parse_args(words))
    assert isinstance(found, CorrelationFilter)
    assert found.properties == (("a", value),)
    assert isinstance(found.properties[0][1], type(value))


PROGRAM = """
import sys
sys.argv[1:] = {words!r}
from bridge.cli.command import main
try:
    main()
except SystemExit:
    pass
print(*(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
"""


def imported(*words: str) -> set[str]:
    """Return the modules that a command line has imported, but for Python's own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=list(words))],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_said_without_reading_the_bridge() -> None:
    """It imports a dozen of the bridge's modules and no other package: 0.1 s."""
    found = imported("--version")
    own = {name for name in found if name.startswith(("bridge", "policies"))}
    assert len(own) <= 12, sorted(own)
    packages = {"aiohttp", "rich", "shtab", "pamqp", "pika", "tenacity", "cryptography", "yarl"}
    assert not packages & {name.partition(".")[0] for name in found}


def test_a_help_imports_no_package_of_an_extra() -> None:
    """Nor does the list of commands: they work where the library alone is installed."""
    for words in (("--help",), ("ls", "--help"), ("create", "queue", "--help")):
        packages = {name.partition(".")[0] for name in imported(*words)}
        assert not packages & {"aiohttp", "rich", "shtab", "azure"}


def test_the_list_of_commands_has_each_with_its_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one order, whichever is called."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    places = [re.search(rf"^    {name}\s", text, re.MULTILINE) for name in COMMANDS]
    assert None not in places
    assert isinstance(parser_of(()), CommandParser)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The completion of each shell, in a file."""
    folder = tmp_path_factory.mktemp("completion")
    found = {}
    for shell, name in (("bash", "busbridge"), ("zsh", "_busbridge"), ("fish", "busbridge.fish")):
        done = subprocess.run(
            [sys.executable, "-m", "bridge.cli.command", "completion", shell],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        found[shell] = folder / name
        found[shell].write_text(done.stdout)
    return found


BASH = """
source {script}
complete_line() {{
  COMP_WORDS=($1 "$2"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
  $(complete -p busbridge | sed 's/.*-F \\([^ ]*\\).*/\\1/') busbridge "$2" ""
  printf '%s\\n' "${{COMPREPLY[@]}}"
}}
complete_line "busbridge" "pro"
complete_line "busbridge create" "to"
complete_line "busbridge create queue" "--lock"
"""

FISH = """
source {script}
complete --do-complete 'busbridge pro'
complete --do-complete 'busbridge create to'
complete --do-complete 'busbridge create queue --lock'
"""


def shell(name: str, program: str) -> str:
    """Return what a shell prints."""
    done = subprocess.run(
        [name, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bash_completes_commands_kinds_and_options(scripts: dict[str, Path]) -> None:
    """By its own machinery."""
    text = shell("bash", BASH.format(script=scripts["bash"]))
    assert {"profile", "topic", "--lock-duration"} <= set(text.split())


def test_fish_completes_commands_kinds_and_options(scripts: dict[str, Path]) -> None:
    """By its own machinery where it is installed; else each line is one of its `complete`."""
    if shutil.which("fish"):
        text = shell("fish", FISH.format(script=scripts["fish"]))
        assert {"profile", "topic", "--lock-duration"} <= set(text.split())
    else:
        text = scripts["fish"].read_text()
        assert re.search(r"^complete -c busbridge .*profile", text, re.MULTILINE)


def test_zsh_takes_the_script(scripts: dict[str, Path]) -> None:
    """Its first line says which command it completes; zsh, where installed, can read it."""
    text = scripts["zsh"].read_text()
    assert text.startswith("#compdef busbridge")
    assert "--lock-duration" in text
    if shutil.which("zsh"):
        program = f"source /dev/null; zsh -n {scripts['zsh']}"
        shell("zsh", program)
