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
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.commands.probe_questions import ProbeQueues
    from bridge.remote.administration import RemoteAdministration

FORMAT: Final = 1
ANSWER_S: Final = 90.0
"""The longest time for one question."""

COLUMNS: Final = ("question", "answer")


async def probe(target: NamespaceLogin, path: Path, output: Output) -> int:
    """Ask, make the queues, write the answers, delete the queues.

    Returns DIFFERENCES if a question has no answer, STOPPED if not all were asked.
    """
    from bridge.commands.probe_questions import QUESTIONS, ProbeQueues
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    name = f"busbridge-probe-{secrets.token_hex(4)}"
    names = (name, f"{name}-sessions")
    output.confirm(
        f"Make the queues {names[0]!r} and {names[1]!r} in {target.name!r}, send some 350 messages "
        "to them, and delete both afterwards?"
    )
    answers: list[dict[str, Any]] = []
    async with RemoteAdministration(target.address, target.credential) as administration:
        tier = (await administration.namespace()).tier
        try:
            await _make(administration, names)
            async with RemoteNamespace(target.address, target.credential) as namespace:
                queues = ProbeQueues(namespace, administration, *names)
                with (
                    output.interruption.deferred() as asked,
                    output.progress(len(QUESTIONS), "asking") as progress,
                ):
                    for question in QUESTIONS:
                        if asked.is_set():
                            break
                        answers.append(await answered(question, queues))
                        progress.advance()
        finally:
            with output.interruption.deferred():  # another signal does not leave the queues there
                is_gone = await _remove(administration, names, output)
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
    output.say(f"The answers are in {path}.{' Both queues are deleted.' if is_gone else ''}")
    if len(answers) < len(QUESTIONS):
        output.say("Stopped; the next run asks all again.")
        return ExitCode.STOPPED
    failed = any("failed" in each for each in answers)
    return ExitCode.DIFFERENCES if failed or not is_gone else ExitCode.DONE


def _write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n")


async def _make(administration: RemoteAdministration, names: tuple[str, str]) -> None:
    from bridge.commands.probe_questions import LOCK_S
    from bridge.model.properties import EntityKind
    from bridge.remote.entity import entity_node

    for name, needs_sessions in zip(names, ("false", "true"), strict=True):
        given = {"LockDuration": f"PT{LOCK_S}S", "RequiresSession": needs_sessions}
        await administration.create(
            EntityKind.QUEUE.value, entity_node(EntityKind.QUEUE, given), name
        )


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


async def _remove(
    administration: RemoteAdministration, names: tuple[str, str], output: Output
) -> bool:
    """Delete the queues that were made; return whether both are gone."""
    from bridge.remote.errors import RemoteError, RemoteNotFound

    is_gone = True
    for name in names:
        try:
            await administration.delete(name)
        except RemoteNotFound:
            continue
        except RemoteError as error:
            is_gone = False
            output.say(f"The queue {name!r} is still there ({error}): delete it.")
        except asyncio.CancelledError:
            output.say(f"The queues {' and '.join(names)} may still be there: delete them.")
            raise
    return is_gone
