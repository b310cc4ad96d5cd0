"""LIKE: `%` is any run of characters, `_` exactly one; case counts.

A pattern is compiled to the runs between its `%`. The first run begins the text, the last ends it,
and each run between is taken where it occurs first, so no text is read twice. A run without `_` is
found by `str.find`, a run with `_` by a bit for each of its characters (shift-and): linear in the
text for any pattern.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.model.filters.errors import FilterException

TEXT_LENGTH_MAX = 32_767
"""Characters of a text for LIKE, and of a result of +: Azure takes no longer property."""

PATTERN_LENGTH_MAX = 1_024
"""Characters of a pattern: a constant cannot be longer, a computed pattern must not."""

_ANY = None

_Run = tuple[str | None, ...]
_Find = Callable[[str, int], int]


def compile_like(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Return the test of a pattern.

    Raises:
        FilterException: the pattern is too long, or the escape is not one character or is last.
    """
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise FilterException(f"A LIKE pattern has at most {PATTERN_LENGTH_MAX} characters.")
    runs = _runs(pattern, escape)
    if len(runs) == 1:
        return _whole(runs[0])
    first, last = runs[0], runs[-1]
    finds = [(len(run), _find(run)) for run in runs[1:-1] if run]
    least = sum(map(len, runs))

    def matches(text: str) -> bool:
        if len(text) < least or not (
            _is_at(first, text, 0) and _is_at(last, text, len(text) - len(last))
        ):
            return False
        at, end = len(first), len(text) - len(last)
        for length, find in finds:
            at = find(text, at)
            if at < 0:
                return False
            at += length
        return at <= end

    return matches


def _runs(pattern: str, escape: str | None) -> list[_Run]:
    """Return the runs before, between and behind the `%`: characters, `None` for `_`."""
    if escape is not None and len(escape) != 1:
        raise FilterException("The escape of LIKE is a string of one character.")
    runs: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise FilterException("A LIKE pattern ends with its escape character.")
            runs[-1].append(escaped)
        elif character == "%":
            runs.append([])
        else:
            runs[-1].append(_ANY if character == "_" else character)
    return [tuple(run) for run in runs]


def _whole(run: _Run) -> Callable[[str], bool]:
    def matches(text: str) -> bool:
        return len(text) == len(run) and _is_at(run, text, 0)

    return matches


def _is_at(run: _Run, text: str, at: int) -> bool:
    for offset, character in enumerate(run, at):
        if character is not _ANY and text[offset] != character:
            return False
    return True


def _find(run: _Run) -> _Find:
    """Return the function that finds a run's first place at or behind a position, -1 for none."""
    literal = "".join(each for each in run if each is not None)
    if len(literal) == len(run):
        return lambda text, at: text.find(literal, at)
    if not literal:
        return lambda text, at: at if at + len(run) <= len(text) else -1
    anywhere = sum(1 << place for place, each in enumerate(run) if each is _ANY)
    places = dict.fromkeys(literal, anywhere)
    for place, each in enumerate(run):
        if each is not None:
            places[each] |= 1 << place
    whole = 1 << (len(run) - 1)

    def find(text: str, at: int) -> int:
        state = 0
        for place in range(at, len(text)):
            state = (state << 1 | 1) & places.get(text[place], anywhere)
            if state & whole:
                return place - len(run) + 1
        return -1

    return find
