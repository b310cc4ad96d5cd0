"""Running of a command: its loop, its end by a signal, and the sentence for each error."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from bridge.commands.errors import CommandError, WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Run
from bridge.model.errors import ServiceBusError
from bridge.remote.credentials import NO_TOKEN
from bridge.remote.errors import (
    RemoteConnectionLost,
    RemoteError,
    RemoteOtherEntity,
    RemoteUnauthorized,
)


def run_command(run: Run, arguments: argparse.Namespace, right: str) -> int:
    """Run a command and return its exit code; an error is one sentence on standard error.

    So is that of a file, for a command that has no better words.

    Args:
        right: the claim that the command needs, for a refusal's sentence.

    Raises:
        ModuleNotFoundError: a package of an extra is missing.
    """
    output = Output(as_json=arguments.json, is_confirmed=getattr(arguments, "yes", False) is True)
    try:
        return asyncio.run(_run(run, arguments, output, right))
    except CommandError as error:
        output.say(f"busbridge: {error}")
        return error.code
    except BrokenPipeError:
        # Who read the output has gone, such as `head`, which the shell's own tools answer with this
        # code. Python would say so again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.UNREAD
    except OSError as error:
        if error.filename is None:
            raise
        output.say(f"busbridge: {error.filename}: {error.strerror}.")
        return ExitCode.FAILED


async def _run(run: Run, arguments: argparse.Namespace, output: Output, right: str) -> int:
    task = asyncio.ensure_future(run(arguments, output))
    with output.interruption.ending(task):
        try:
            return await task
        except asyncio.CancelledError:
            output.say(
                "busbridge: interrupted; what was under way may have been done, or not: look "
                "before you give the same command again."
            )
            return ExitCode.STOPPED
        except ServiceBusError as error:  # the model's: what was given can be no definition
            raise WrongInput(str(error)) from error
        except RemoteOtherEntity as error:
            raise WrongInput(_sentence(error)) from error
        except RemoteUnauthorized as error:
            text = f"{_sentence(error)} {_remedy(error, right)}"
            raise CommandError(text) from error
        except RemoteConnectionLost as error:
            raise CommandError(_with_advice(_sentence(error), arguments)) from error
        except RemoteError as error:
            raise CommandError(_sentence(error)) from error


def _remedy(error: RemoteUnauthorized, right: str) -> str:
    """Return what to look at: the login, the key where it is what is refused, or the right."""
    if str(error).startswith(NO_TOKEN):
        return "Log in first, as by `az login`, or set the variables that azure-identity names."
    if "InvalidSignature" in str(error):
        return "The key, or the name of its rule, is wrong: look at the connection string."
    return f"This command needs the right {right}."


def _sentence(error: RemoteError) -> str:
    """Return what the namespace said, and whether it is sure."""
    text = sentence_of(error)
    return f"{text} It may have been done, or not." if error.in_doubt else text


def _with_advice(text: str, arguments: argparse.Namespace) -> str:
    """Return a sentence with what to do if no namespace was named, so this machine's is meant."""
    from bridge.commands.target import is_local
    from bridge.remote.administration import PORT_ADVICE

    if not is_local(arguments):
        return text
    return (
        f"{text.removesuffix(PORT_ADVICE)} No namespace is named, so this is the bridge of this "
        "machine: start it with `busbridge serve`, say where it listens (BUSBRIDGE_PORT), or name "
        "another (`busbridge profile add --help`)."
    )
