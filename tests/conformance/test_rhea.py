"""A third witness: rhea, the AMQP 1.0 library under the JavaScript SDK."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from bridge.wire.amqp10.types import decode
from bridge.wire.amqp10.writing import encode
from tests.conformance.door import KEY, RULE_NAME, Door
from tests.fixtures.node import FOLDER, RunNode
from tests.unit.wire.amqp10.values import EXAMPLES

HERE = Path(__file__).parent

CANNOT_WRITE = {"uuid", "timestamp"}
"""Element types of arrays that rhea reads and cannot write."""


def test_every_type() -> None:
    """Rhea reads our bytes to their end, and we read its bytes as the same value."""
    node = shutil.which("node")
    assert node is not None, "Node is missing (make setup)"
    values = [(name, value) for name in EXAMPLES for value in EXAMPLES[name]]
    done = subprocess.run(
        [node, str(HERE / "rhea_types.cjs")],
        cwd=FOLDER,
        input="".join(encode(value).hex() + "\n" for _, value in values),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(values)
    for (name, value), theirs in zip(values, found, strict=True):
        assert theirs["left"] == 0
        if theirs["hex"] is None:
            assert name == "array"
            assert value.type in CANNOT_WRITE
        else:
            assert encode(decode(bytes.fromhex(theirs["hex"]))[0]) == encode(value)


def test_conversation(door: Door, run_node: RunNode) -> None:
    """Rhea sends every kind of body in frames of 1 KiB, receives, releases, settles and drains."""
    printed = run_node(HERE / "rhea_client.cjs", str(door.port), RULE_NAME, KEY)

    result = json.loads(printed)
    bodies = result.pop("bodies")
    assert result == {"settled": 213, "received": 213, "released": 1, "drained": True}
    assert bodies == {
        "uuid": "Buffer 16",
        "ulong": "5",
        "long": "-5",
        "int": "-5",
        "symbol": '"sym"',
        "string": '"text"',
        "double": "1.5",
        "float": "0.5",
        "list": '[1,"two",null]',
        "map": '{"a":1,"b":[true]}',
        "array": "[1,2,3]",
        "data": "Data true",
        "sequence": bodies["sequence"],
    }
