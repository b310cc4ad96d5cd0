"""Python and JavaScript log in by token: an issuer's keys, renewals, ends, and rights by claims."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bridge.cli.main import main
from tests.acceptance.driver import HERE, node_program
from tests.acceptance.issuer import TENANT, Issuer
from tests.acceptance.logins import (  # noqa: F401
    Logins,
    Sdk,
    failures,
    test_a_load_goes_on_when_tokens_are_renewed_and_the_key_has_changed,
    test_a_right_that_is_taken_away_ends_open_links,
    test_a_token_that_ends_ends_its_links,
    test_an_application_with_a_default_credential,
    test_an_application_without_a_key,
)


def python(_: Issuer) -> Sdk:
    """The client renews in the last tenth of a lifetime."""
    command = [sys.executable, str(HERE / "python" / "tokens.py")]
    return Sdk("python", command, told_s=20, holds_s=35)


def javascript(_: Issuer) -> Sdk:
    """The client renews two minutes before the end."""
    return Sdk("javascript", node_program("tokens.mjs"), told_s=128, holds_s=35)


LIBRARIES = ("python", "javascript")

SDKS = {"python": python, "javascript": javascript}

ENTITIES = {
    "python": {},
    "python-load": {},
    "python-sessions": {"RequiresSession": True},
    "javascript": {},
    "javascript-load": {},
    "javascript-sessions": {"RequiresSession": True},
}


@pytest.mark.parametrize(
    "name",
    [f"https://sts.windows.net/{TENANT}/", f"https://login.microsoftonline.com/{TENANT}/v2.0"],
)
def test_a_token_as_entra_writes_it(logins: Logins, name: str) -> None:
    """A tenant of the rules file has both of its issuers, of versions 1.0 and 2.0."""
    (chosen,) = [each for each in logins.sdks if each.name == "python"]
    logins.issuer.give("python", 3600, issuer=name)
    try:
        assert not failures(logins.run(chosen))
    finally:
        logins.issuer.give("python", 3600)


def test_the_commands_log_in_without_a_key(
    logins: Logins,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By a profile of `--entra`: they list, send and receive, and no secret is left anywhere."""
    secret = "secret of python"
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "AZURE_AUTHORITY_HOST": logins.issuer.url,
        "AZURE_TENANT_ID": "adfs",
        "AZURE_CLIENT_ID": "python",
        "AZURE_CLIENT_SECRET": secret,
        "REQUESTS_CA_BUNDLE": str(logins.issuer.ca),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)
    left: list[str] = []

    def run(*words: str, code: int = 0) -> str:
        done = main([*words])
        said = capsys.readouterr()
        left.extend(said)
        assert done == code, said
        return said.out if code == 0 else said.err

    host = f"localhost:{logins.bridge.port}"
    run("profile", "add", "bus", "--entra", host, "--ca-file", str(logins.issuer.ca))
    run("profile", "use", "bus")
    run("send", "python", "hello")
    counts = {row["path"]: row["active"] for row in map(json.loads, run("ls").splitlines())}
    assert counts["python"] == 1
    taken = json.loads(run("receive", "python", "--settle", "complete", "--yes", "--wait", "120"))
    assert taken["body"] == "hello"
    assert json.loads(run("create", "queue", "made"))["path"] == "made"
    run("delete", "queue", "made", "--yes")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", wrong := "another secret")
    refused = run("send", "python", "hello", code=1)
    assert refused.count("The credential gives no token") == 1
    assert "Log in first" in refused
    assert "needs the right" not in refused
    left += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in left if secret in text or wrong in text]
