"""Changes a message in the user's editor, as the fields of its line."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.background.tasks import Tasks
from bridge.commands.clock import now_ms
from bridge.commands.errors import CommandError
from bridge.operations.lines.exact_lines import exact_fields_of, message_of
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.remote.errors import RemoteError

if TYPE_CHECKING:
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage

RENEW_S: Final = 2.0
"""How often the lock of a message is renewed that is in the editor: the shortest has 5 s."""


class Editor:
    """The editor of VISUAL or EDITOR; the message's lock is renewed while its user thinks."""

    def __init__(self, management: RemoteManagement) -> None:
        self._management = management

    async def edited(
        self, message: RemoteMessage, delivery: RemoteDelivery
    ) -> RemoteMessage | None:
        """Return what is made of a message; `None`: it was saved empty.

        A text that stands for no message is shown again, with what is wrong in its first line.

        Args:
            delivery: the message that is locked meanwhile.

        Raises:
            CommandError: there is no editor, or it has failed.
        """
        text = json.dumps(exact_fields_of(message), ensure_ascii=False, indent=2)
        tasks = Tasks()
        tasks.start(self._renew(delivery), name="renew what is edited")
        try:
            while True:
                text = await _in_editor(text)
                kept = (line for line in text.split("\n") if not line.startswith("//"))
                text = "\n".join(kept).strip()
                if not text:
                    return None
                try:
                    return message_of(text, now_ms=now_ms())
                except ValueRefused as error:
                    text = f"// {error}\n{text}"
        finally:
            tasks.cancel()

    async def _renew(self, delivery: RemoteDelivery) -> None:
        while delivery.lock_token is not None:
            await asyncio.sleep(RENEW_S)
            with suppress(RemoteError):
                await self._management.renew_lock([delivery.lock_token])


async def _in_editor(text: str) -> str:
    """Return a text as the user has saved it."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    path = await asyncio.to_thread(_written, text)
    try:
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(path))
        except (OSError, ValueError) as error:
            raise CommandError(f"The editor {editor!r} cannot be started: {error}.") from None
        if await process.wait():
            raise CommandError(f"The editor {editor!r} has failed; nothing more was sent.")
        return await asyncio.to_thread(path.read_text, "utf-8")
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _written(text: str) -> Path:
    """Return a new file with a text, which its owner alone can read."""
    descriptor, name = tempfile.mkstemp(suffix=".json", prefix="busbridge-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return Path(name)
