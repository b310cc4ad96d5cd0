"""The last messages forwarded to an entity: a second copy gets no second number.

After a kill of a forwarder between confirm and ack, its message is forwarded again. A forwarder
also forwards the second copies that the source's sequencer has published. For each source, as many
identities are kept as may come again. A successor reads them from the snapshots, and from the
journal entries behind the last snapshot.

    row    source 7 bytes | count u16 | identities, 16 bytes each, the oldest first
"""

from __future__ import annotations

import struct
from collections import OrderedDict

from bridge.wire.envelope import IDENTITY_BYTES, SOURCE_BYTES
from bridge.wire.forwarded import is_transfers
from bridge.wire.sections import MalformedEntry

KEPT_MIN = 256
"""Above the largest number of unacked messages that a forwarder has published."""

KEPT_MIN_OF_TRANSFERS = 1_024
"""Above the largest number of transfers that a leader may have published when it is killed: its
successor publishes them again, and the forwarder passes both on."""

KEPT_MAX = 2_048
TOTAL = 65_536
"""1 MB in a snapshot; above 256 sources (64 of transfers) the minimum is kept of each."""

SOURCES_MAX = 2_048
"""Above this number the source that has forwarded longest ago is forgotten."""

_HEAD = struct.Struct(f">{SOURCE_BYTES}sH")


class Forwarded:
    """The identities of the messages that each source has forwarded last."""

    def __init__(self) -> None:
        self._sources: OrderedDict[bytes, OrderedDict[bytes, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum([len(each) for each in self._sources.values()])

    def has(self, source: bytes, identity: bytes) -> bool:
        """Whether a source has forwarded this message before."""
        seen = self._sources.get(source)
        return seen is not None and identity in seen

    def note(self, source: bytes, identity: bytes) -> None:
        """Remember a message that is forwarded now."""
        seen = self._sources.get(source)
        if seen is None:
            seen = self._sources[source] = OrderedDict()
            if len(self._sources) > SOURCES_MAX:
                self._sources.popitem(last=False)
        self._sources.move_to_end(source)
        seen[identity] = None
        seen.move_to_end(identity)
        least = KEPT_MIN_OF_TRANSFERS if is_transfers(source) else KEPT_MIN
        kept = min(max(TOTAL // len(self._sources), least), KEPT_MAX)
        while len(seen) > kept:
            seen.popitem(last=False)

    def take_back(self, source: bytes, identity: bytes) -> None:
        """Forget a message whose forwarding failed."""
        seen = self._sources.get(source)
        if seen is not None:
            seen.pop(identity, None)

    def encode(self) -> bytes:
        """Return all sources and identities as bytes."""
        return b"".join(
            [
                _HEAD.pack(source, len(seen)) + b"".join(seen)
                for source, seen in self._sources.items()
                if seen
            ]
        )

    @classmethod
    def decode(cls, raw: bytes) -> Forwarded:
        """Read the bytes of `encode`.

        Raises:
            MalformedEntry: the bytes are malformed.
        """
        found = cls()
        at = 0
        while at < len(raw):
            if at + _HEAD.size > len(raw):
                raise MalformedEntry("forwarded identities that end too early")
            source, count = _HEAD.unpack_from(raw, at)
            at += _HEAD.size
            end = at + count * IDENTITY_BYTES
            if end > len(raw):
                raise MalformedEntry(f"{count} forwarded identities in {len(raw) - at} bytes")
            ids = [raw[each : each + IDENTITY_BYTES] for each in range(at, end, IDENTITY_BYTES)]
            found._sources[source] = OrderedDict.fromkeys(ids)
            at = end
        return found
