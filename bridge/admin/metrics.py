"""Metrics in Prometheus's text format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector


class _Families(Collector):
    """Metric families whose values have been read already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


async def render(families: Iterable[Metric]) -> bytes:
    """Return metric families in Prometheus's text format.

    A thread writes the text: a thousand entities make 27,000 lines, and the event loop should not
    keep clients waiting for so long.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return await asyncio.to_thread(generate_latest, registry)
