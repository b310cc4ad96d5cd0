"""`busbridge session state`: what consumers have written down about a session."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import CommandError, WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.input_lines import whole
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, Run, add_command, add_yes
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.commands.parser import CommandParser
    from bridge.remote.session_receiver import RemoteSessionReceiver

ACCEPT_S: Final = 20.0
"""How long a namespace may take to give a session."""

_HELD: Final = "com.microsoft:session-cannot-be-locked"


def register(verbs: Commands) -> None:
    """Add the commands."""
    parser = verbs.add_parser("state", help="show, set and clear the state of a session")
    states = parser.add_subparsers(dest="state_verb", required=True, metavar="VERB")
    _add(
        states,
        "get",
        "show the state of a session, which is held meanwhile",
        _get,
        (
            "busbridge session state get orders --session customer-5",
            "busbridge session state get events audit --session 7 --json | jq -r .state",
        ),
    )
    given = _add(
        states,
        "set",
        "set the state of a session, after asking if it has another",
        _set,
        (
            "busbridge session state set orders --session customer-5 --text '{\"step\": 2}'",
            "busbridge session state set orders --session customer-5 --file state.bin --yes",
        ),
    )
    values = given.add_mutually_exclusive_group(required=True)
    values.add_argument("--text", metavar="TEXT", help="the state as a text, in UTF-8")
    values.add_argument(
        "--file", metavar="FILE", help="the state as a file's bytes; - is standard input"
    )
    values.add_argument("--data", metavar="BASE64", help="the state as bytes")
    add_yes(given)
    cleared = _add(
        states,
        "clear",
        "remove the state of a session, after asking; its messages stay",
        _clear,
        (
            "busbridge session state clear orders --session customer-5",
            "busbridge session state clear events audit --session 7 --yes",
        ),
    )
    add_yes(cleared)


def _add(
    states: Commands, name: str, meaning: str, run: Run, examples: tuple[str, str]
) -> CommandParser:
    parser = add_command(
        states, name, meaning, run=run, right="Listen on the entity", examples=examples
    )
    add_path(parser, has_dead_letter=False)
    parser.add_argument("--session", metavar="ID", required=True, help="the session")
    add_target(parser)
    return parser


@asynccontextmanager
async def _held(arguments: argparse.Namespace) -> AsyncIterator[RemoteSessionReceiver]:
    """Hold the session, without receiving anything of it.

    Raises:
        CommandError: somebody else holds it.
    """
    from bridge.remote.errors import RemoteError
    from bridge.remote.namespace import RemoteNamespace

    path, session_id = path_in(arguments.entity), arguments.session
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        try:
            receiver = await namespace.session_receiver(path, session_id, max_wait_s=ACCEPT_S)
        except RemoteError as error:
            if error.condition != _HELD:
                raise
            raise CommandError(
                f"{sentence_of(error)} Its state is told to who holds it alone: stop that "
                "receiver, or wait until its lock ends, and give the same command again."
            ) from error
        try:
            yield receiver
        finally:
            with suppress(RemoteError):
                await receiver.close()


def shown(state: bytes | None) -> object:
    """Return a state as a line of JSON has it: null, a text, or `{"data": Base64}`."""
    if state is None:
        return None
    try:
        return state.decode()
    except UnicodeDecodeError:
        return {"data": base64.b64encode(state).decode()}


async def _get(arguments: argparse.Namespace, output: Output) -> int:
    async with _held(arguments) as receiver:
        state = await receiver.state()
    if state is None:
        output.say(f"The session {arguments.session!r} has no state.")
    if state is not None or not output.is_table:
        output.record({"session_id": receiver.session_id, "state": shown(state)})
    return ExitCode.DONE


async def _set(arguments: argparse.Namespace, output: Output) -> int:
    state = given_state(arguments.text, arguments.file, arguments.data)
    async with _held(arguments) as receiver:
        was = await receiver.state()
        if was is not None and was != state:
            output.confirm(
                f"The session {arguments.session!r} has a state of {len(was):,} bytes: it is "
                "overwritten."
            )
        await receiver.set_state(state)
    output.say(f"The session {arguments.session!r} has a state of {len(state):,} bytes now.")
    return ExitCode.DONE


def given_state(text: str | None, file: str | None, data: str | None) -> bytes:
    """Return the state that one of three options gives; WrongInput: it is none."""
    if text is not None:
        return text.encode()
    if file is not None:
        return whole(file)
    try:
        return base64.b64decode(data or "", validate=True)
    except binascii.Error as error:
        raise WrongInput(f"--data: this is no Base64: {error}.") from None


async def _clear(arguments: argparse.Namespace, output: Output) -> int:
    async with _held(arguments) as receiver:
        was = await receiver.state()
        if was is None:
            output.say(f"The session {arguments.session!r} has no state.")
            return ExitCode.DONE
        output.confirm(
            f"The session {arguments.session!r} has a state of {len(was):,} bytes: it is removed."
        )
        await receiver.set_state(None)
    output.say(f"The session {arguments.session!r} has no state any more.")
    return ExitCode.DONE
