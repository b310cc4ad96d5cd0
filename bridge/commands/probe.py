"""`busbridge doctor --probe`: two queues are made, asked, and deleted again."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.own_queues import own_queues
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.commands.probe_questions import ProbeQueues

FORMAT: Final = 1
ANSWER_S: Final = 90.0
"""The longest time for one question."""

COLUMNS: Final = ("question", "answer")


async def probe(target: NamespaceLogin, path: Path, output: Output) -> int:
    """Ask, make the queues, write the answers, delete the queues.

    Returns DIFFERENCES if a question has no answer, STOPPED if not all were asked.
    """
    from bridge.commands.probe_questions import LOCK_S, QUESTIONS, ProbeQueues
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    name = f"busbridge-probe-{secrets.token_hex(4)}"
    properties = {"LockDuration": f"PT{LOCK_S}S"}
    queues = {
        name: {**properties, "RequiresSession": "false"},
        f"{name}-sessions": {**properties, "RequiresSession": "true"},
    }
    output.confirm(
        f"Make the queues {' and '.join(map(repr, queues))} in {target.name!r}, send some 350 "
        "messages to them, and delete both afterwards?"
    )
    answers: list[dict[str, Any]] = []
    async with RemoteAdministration(target.address, target.credential) as administration:
        tier = (await administration.namespace()).tier
        async with (
            own_queues(administration, queues, output) as own,
            RemoteNamespace(target.address, target.credential) as namespace,
        ):
            asked_of = ProbeQueues(namespace, administration, *queues)
            with (
                output.interruption.deferred() as asked,
                output.progress(len(QUESTIONS), "asking") as progress,
            ):
                for question in QUESTIONS:
                    if asked.is_set():
                        break
                    answers.append(await answered(question, asked_of))
                    progress.advance()
    found = {
        "format": FORMAT,
        "asked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "namespace": target.address.namespace,
        "tier": tier,
        "busbridge": version("busbridge"),
        "answers": answers,
    }
    output.table(answers, COLUMNS)
    _write(path, found)
    output.say(f"The answers are in {path}.{' Both queues are deleted.' if own.are_gone else ''}")
    if len(answers) < len(QUESTIONS):
        output.say("Stopped; the next run asks all again.")
        return ExitCode.STOPPED
    failed = any("failed" in each for each in answers)
    return ExitCode.DIFFERENCES if failed or not own.are_gone else ExitCode.DONE


def _write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n")


async def answered(
    question: Callable[[ProbeQueues], Awaitable[Any]], queues: ProbeQueues
) -> dict[str, Any]:
    """Return a question with its answer; a refusal is one, and nothing stops the next one."""
    from bridge.remote.errors import RemoteConnectionLost, RemoteError, RemoteTimeout

    asked = (question.__doc__ or "").partition("\n")[0]
    found: dict[str, Any] = {
        "question": asked,
        "id": getattr(question, "__name__", ""),
        "answer": None,
    }
    try:
        async with asyncio.timeout(ANSWER_S):
            await queues.drain()
            found["answer"] = await question(queues)
    except TimeoutError:
        found["failed"] = f"no answer within {ANSWER_S:g} s"
    except (RemoteConnectionLost, RemoteTimeout) as error:
        found["failed"] = str(error)
    except RemoteError as error:
        found["answer"] = {"condition": error.condition, "description": error.description}
    except (ValueError, IndexError) as error:
        found["failed"] = f"the answer cannot be read: {error}"
    return found
