"""Messages of many pages in one table."""

from __future__ import annotations

import io
import tracemalloc

from bridge.commands.output import Output
from bridge.commands.shown_messages import ShownMessages
from bridge.remote.message import RemoteMessage

PAGES = 40
BODY_BYTES = 250_000


class Terminal(io.StringIO):
    """What rich draws on."""

    def isatty(self) -> bool:
        """It is a terminal."""
        return True


def page() -> list[RemoteMessage]:
    """Return a page of messages that are large."""
    return [RemoteMessage.of(data=b"x" * BODY_BYTES) for _ in range(2)]


def test_a_table_keeps_what_it_shows_and_no_bodies() -> None:
    """A dead-letter queue may be larger than the memory; the table has all of it all the same."""
    terminal = Terminal()
    shown = ShownMessages(Output(stdout=terminal, stderr=io.StringIO()), is_full=False)
    tracemalloc.start()
    try:
        for _ in range(PAGES):
            shown.add(page())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * BODY_BYTES
    assert not terminal.getvalue()
    shown.end()
    assert terminal.getvalue().count("x… ") == 2 * PAGES


def test_everything_of_each_is_shown_at_once() -> None:
    """`--full` needs no other row's width."""
    terminal = Terminal()
    shown = ShownMessages(Output(stdout=terminal, stderr=io.StringIO()), is_full=True)
    shown.add([RemoteMessage.of(data=b"first")])
    assert "first" in terminal.getvalue()
    shown.end()
    assert terminal.getvalue().count("first") == 1
