"""Why the messages of an entity do not show while two namespaces are compared, and what to do."""

from __future__ import annotations

from typing import Final

from bridge.commands.errors import sentence_of
from bridge.commands.migration.connection import run_name
from bridge.commands.migration.record import CopyRecord
from bridge.commands.target import NamespaceLogin
from bridge.remote.administration import RemoteAdministration
from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace

DISABLED: Final = "com.microsoft:entity-disabled"
"""What a peek is refused with at an entity whose status forbids it, or that is held."""


async def why_hidden(
    path: str,
    error: RemoteError,
    source: NamespaceLogin,
    target: NamespaceLogin,
    namespace: RemoteNamespace,
) -> str:
    """Return a sentence without its end.

    Args:
        error: what a side has said.
        namespace: the target.

    Raises:
        RemoteError: the target does not answer.
    """
    async with RemoteAdministration(target.address, target.credential) as administration:
        record = CopyRecord(administration, namespace, run_name(source))
        found = (await record.read()).get(path.lower())
    if found is not None and found[0].is_returned:
        return (
            f"it has come back to {source.name} (`busbridge migrate back`), whose messages are "
            f"those that count; at {target.name} it is disabled, so nothing is left to compare. "
            f"Delete it at {target.name} when {source.name} runs well, and never enable it"
        )
    return (
        f"its messages do not show: {sentence_of(error).rstrip('.')}. See which side it is "
        f"(`busbridge show {path} -n {source.name}`, `-n {target.name}`), have it Active there "
        "(`busbridge update ... --status Active`), and compare again"
    )
