"""A short run of the fuzz program; the long one is in `tests/soak`."""

from __future__ import annotations

from tests.soak.fuzz_gateway import SEED, fuzz


async def test_mutated_frames() -> None:
    """20,000 mutated frames raise nothing, and many conversations survive theirs."""
    report = await fuzz(20_000, SEED)

    assert report.mutated >= 20_000
    assert report.survived > report.conversations / 20
    assert report.sent > 10 * report.conversations
