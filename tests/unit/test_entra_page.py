"""The rules files that docs/entra.md and docs/tokens.md show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.model.access_policy import read_policy

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["entra.md", "tokens.md"])
def test_each_rules_file_of_the_page_is_one(page: str) -> None:
    """The bridge takes them as they stand, and each issuer grants something."""
    files = re.findall(r"^```json\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert files
    for text in files:
        policy = read_policy(text)
        assert policy.issuers
        assert all(issuer.grants for issuer in policy.issuers)
