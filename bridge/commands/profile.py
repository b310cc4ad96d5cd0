"""Profiles: named namespaces, and where the connection string of each is to be had.

They stand in one file of JSON that its owner alone can read. A key is in it only when the user asks
for that; otherwise the file names the variable, the file or the command that gives the connection
string each time.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from bridge.commands.errors import WrongInput

LOCAL = "local"
"""The name of the namespace that needs no profile: the bridge, or the emulator, of this machine."""

COMMAND_S = 60.0
"""How long a command may take to print a connection string: it may ask its user for a password."""

_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A namespace; exactly one of the five sources is set. The repr shows no key.

    Attributes:
        host: the namespace's host, with its port if it has one.
        variable: the environment variable with the connection string.
        file: the file with the connection string, as an absolute path.
        command: the command that prints the connection string; no shell takes part.
        stored: the connection string itself.
        entra: the login is by tokens of Microsoft Entra ID; there is no connection string.
        ca_file: certificates of authorities that may have signed the namespace's.
        custom_endpoint_address: the host and port to connect to instead.
        websocket: AMQP over WebSockets.
    """

    name: str
    host: str = ""
    variable: str = ""
    file: str = ""
    command: str = ""
    stored: str = field(default="", repr=False)
    entra: bool = False
    ca_file: str = ""
    custom_endpoint_address: str = ""
    websocket: bool = False

    @property
    def source(self) -> str:
        """Where the login comes from, in words."""
        for kind in ("variable", "file", "command"):
            if given := getattr(self, kind):
                return f"{kind} {given}"
        return "Microsoft Entra ID" if self.entra else "stored key"

    def connection_string(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the connection string; with `entra`, the host.

        Raises:
            WrongInput: the source has none now.
        """
        if self.variable:
            return variable(self.variable, environment)
        if self.file:
            return _from_file(self.file)
        if self.command:
            return _from_command(self.command)
        return self.stored or self.host


def variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the connection string in an environment variable.

    Raises:
        WrongInput: it is not set.
    """
    text = environment.get(name, "").strip()
    if not text:
        raise WrongInput(f"The environment variable {name} is not set, or is empty.")
    return text


def _from_file(path: str) -> str:
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise WrongInput(f"The file {path} cannot be read: {reason}.") from None
    if not text:
        raise WrongInput(f"The file {path} is empty.")
    return text


def _from_command(command: str) -> str:
    """Return the first line that a command prints; its standard error is the user's to read."""
    try:
        done = subprocess.run(
            shlex.split(command), stdout=subprocess.PIPE, timeout=COMMAND_S, text=True, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = "it takes too long" if isinstance(error, subprocess.TimeoutExpired) else error
        raise WrongInput(f"The command {command!r} gives no connection string: {reason}.") from None
    line = done.stdout.strip().partition("\n")[0].strip()
    if done.returncode or not line:
        raise WrongInput(
            f"The command {command!r} gives no connection string: exit code {done.returncode}."
        )
    return line


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of a user.

    Attributes:
        current: the profile that is used when none is named; `LOCAL` without one.
    """

    by_name: Mapping[str, Profile] = field(default_factory=dict)
    current: str = LOCAL

    def named(self, name: str) -> Profile:
        """Return a profile.

        Raises:
            WrongInput: there is none of that name.
        """
        if name in self.by_name:
            return self.by_name[name]
        known = ", ".join([LOCAL, *self.by_name])
        raise WrongInput(
            f"There is no profile {name!r}; there are: {known}. `busbridge profile add --help` "
            "says how to add one."
        )

    def added(self, profile: Profile) -> Profiles:
        """Return these and another one, in place of one of its name."""
        return replace(self, by_name={**self.by_name, profile.name: profile})

    def without(self, name: str) -> Profiles:
        """Return these without one."""
        rest = {each: found for each, found in self.by_name.items() if each != name}
        return Profiles(rest, LOCAL if self.current == name else self.current)


def path_of(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file: in XDG_CONFIG_HOME, or ~/.config."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    base = Path(folder) if folder.startswith("/") else Path.home() / ".config"
    return base / "busbridge" / "profiles.json"


def read(path: Path) -> Profiles:
    """Return the profiles in a file; none if there is no file.

    Raises:
        WrongInput: the file is malformed, or others can read the keys in it.
    """
    try:
        text = path.read_text()
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeError) as error:
        raise WrongInput(f"The file of profiles {path} cannot be read: {error}.") from None
    try:
        document = json.loads(text)
        known = {each.name for each in fields(Profile)}
        by_name = {
            name: Profile(name=name, **{key: form[key] for key in form if key in known})
            for name, form in document["profiles"].items()
        }
        current = document.get("current") or LOCAL
    except (ValueError, LookupError, TypeError, AttributeError):
        raise WrongInput(f"The file of profiles {path} is not one: mend or remove it.") from None
    if mode & ~_MODE and any(each.stored for each in by_name.values()):
        raise WrongInput(f"Others can read the keys in {path}: chmod 600 {path}")
    return Profiles(by_name, current if current in by_name else LOCAL)


def write(path: Path, profiles: Profiles) -> None:
    """Write profiles to a file, in place of the one that is there.

    Raises:
        WrongInput: the file cannot be written.
    """
    forms = {}
    for name, profile in profiles.by_name.items():
        given = asdict(profile)
        del given["name"]
        forms[name] = {key: value for key, value in given.items() if value}
    text = json.dumps({"current": profiles.current, "profiles": forms}, indent=2) + "\n"
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise WrongInput(f"The file of profiles {path} cannot be written: {error}.") from None
    finally:
        beside.unlink(missing_ok=True)
