"""Each example of a property test is tried somewhere."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.fixtures.examples import IN_PARTS, examples


@pytest.mark.parametrize(
    ("profile", "tried", "unsaid"),
    [(IN_PARTS, 100, 33), ("explore", 300, 100)],
)
def test_only_make_test_tries_a_part(profile: str, tried: int, unsaid: int) -> None:
    """The profiles are those of `make test` and of `make explore`."""
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert examples(300) == tried
        assert settings().max_examples == unsaid
    finally:
        settings.load_profile(before)
