"""Processor time of RabbitMQ and of bridges, without what they take when nothing is sent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tests.bench.rabbit import Bench

IDLE_S = 3.0


class ProcessorTime:
    """The processor time of a bench's RabbitMQ (`None`), and of bridges by their process ids."""

    def __init__(self, rabbit: Bench) -> None:
        self._rabbit = rabbit
        self._idle: dict[int | None, float] = {}

    async def learn_idle(self, ids: Iterable[int]) -> None:
        """Learn what share of a core RabbitMQ and these bridges take without any messages."""
        before = {each: self._used_s(each) for each in (None, *ids)}
        await asyncio.sleep(IDLE_S)
        self._idle = {each: (self._used_s(each) - used) / IDLE_S for each, used in before.items()}

    def begin(self, *ids: int | None) -> Measure:
        """Begin to measure RabbitMQ and these bridges; `None` is left out."""
        return Measure(self, (None, *(each for each in ids if each is not None)))

    def used_s(self, process_id: int | None) -> tuple[float, float]:
        """Return what one has used so far, and what share of a core it takes when idle."""
        return self._used_s(process_id), self._idle[process_id]

    def _used_s(self, process_id: int | None) -> float:
        return self._rabbit.cpu_s() if process_id is None else processor_s(process_id)


class Measure:
    """Processor time from now on."""

    def __init__(self, times: ProcessorTime, ids: tuple[int | None, ...]) -> None:
        self._times = times
        self._begun_s = time.monotonic()
        self._before = {each: times.used_s(each)[0] for each in ids}

    def each_us(self, count: int) -> list[float]:
        """Return the microseconds for each of so many messages, RabbitMQ's first."""
        took_s = time.monotonic() - self._begun_s
        used = []
        for process_id, before_s in self._before.items():
            now_s, idle = self._times.used_s(process_id)
            used.append(1e6 * (now_s - before_s - idle * took_s) / count)
        return used


def processor_s(process_id: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
