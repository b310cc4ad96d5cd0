"""All benchmarks, one after another: `make bench`, or `python -m tests.bench [NAME...]`.

Exits with 1 when a figure is below its floor or a benchmark fails. Raw samples: `build/bench`.
"""

from __future__ import annotations

import subprocess
import sys
import time

BENCHMARKS = {
    "hop": "inbox to active queue, beside RabbitMQ's shovel",
    "sdk": "the real SDK through the bridge, beside an in-memory server",
    "singles": "single sends of AMQP 1.0 clients, beside RabbitMQ's own AMQP 1.0",
    "dotnet": ".NET's clients, beside RabbitMQ.Client and RabbitMQ's own AMQP 1.0",
    "transactions": "transactions of one receive and one send, beside the two without",
    "remote": "the client of other namespaces, beside azure-servicebus",
    "relay": "a relay between two queues, beside its bound, azure-servicebus and a shovel",
    "relay_memory": "1,000,000 messages through a relay: its memory at each tenth",
    "migration": "50,000 messages in all states by migrate run, beside batched sends; its memory",
    "calls": "function calls of the bridge's, one message received and completed",
    "library": "the library on RabbitMQ, beside plain pika and plain aio-pika",
    "processors": "what processors of several credits cost RabbitMQ",
    "schedule": "scheduled messages, beside kombu's TTL ladder",
    "takeover": "how long nobody numbers when a bridge ends, on a long journal",
    "duplicates": "what duplicate detection costs, and 1,000,000 remembered ids",
    "browse": "peeks at random places of 1,000,000 messages, and what being peeked costs",
    "sessions": "60,000 messages in 10,000 sessions: held, and held again after a kill",
    "session_rates": "sessions accepted, and one session's messages, beside an in-memory server",
    "session_shards": "sessions drained by one bridge and by two, 1 shard and 4",
    "session_states": "10,000 sessions with a state and nothing else: memory, processor time",
    "filters": "2,000 SQL filters: evaluations a second, and what the index saves",
    "fanout": "a topic with 200 subscriptions of SQL filters, beside the two that match",
    "counts": "a page of 100 entities with counts, beside 100 and 1,000",
    "objects": "what 1,000 queues, streams, exchanges and bindings cost RabbitMQ",
    "entities": "1,000 entities made, started again, taken over, and idle",
    "policies": "how few policies, and what a change costs the broker",
}


def main(wanted: list[str]) -> int:
    """Run the named benchmarks, or all; return the exit code."""
    unknown = [name for name in wanted if name not in BENCHMARKS]
    if unknown:
        print(f"bench: there is no {unknown[0]!r}; there are {', '.join(BENCHMARKS)}.")
        return 2
    failed = []
    for name in wanted or BENCHMARKS:
        begin = time.monotonic()
        print(f"== {name}: {BENCHMARKS[name]}", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)
    if failed:
        print(f"bench: below a floor, or failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
