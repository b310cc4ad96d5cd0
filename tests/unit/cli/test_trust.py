"""`busbridge trust`: the CA is made if need be, and named wherever an SDK needs it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bridge.cli.certificates import own_certificate
from bridge.cli.main import main
from bridge.cli.settings import read_settings
from bridge.cli.trust import advice


def test_it_names_the_ca_for_each_sdk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an absolute path, before the bridge was ever started."""
    monkeypatch.chdir(tmp_path)
    assert main(["trust", "--data-dir", "data", "--tls-name", "bus.example"]) == 0

    said = capsys.readouterr().out
    ca = tmp_path / "data" / "tls" / "ca.pem"
    assert ca.is_file()
    parts = {part.split()[0]: part for part in said.split("\n\n")[1:]}
    assert list(parts) == ["Python", "JavaScript", "Java", "Go", ".NET"]
    assert all(str(ca) in part for part in parts.values())
    assert "localhost, 127.0.0.1, ::1, bus.example" in said


def test_a_path_with_a_space_is_quoted(tmp_path: Path) -> None:
    """The commands are for a shell."""
    folder = tmp_path / "a b"
    said = advice(read_settings(argparse.Namespace(data_dir=str(folder)), {}))

    assert f"export SSL_CERT_FILE='{folder}/tls/ca.pem'" in said


def test_of_a_certificate_that_was_given(tmp_path: Path) -> None:
    """Its issuer is the operator's to know; nothing is made."""
    given = own_certificate(tmp_path / "given", now=datetime.now(UTC)).server
    options = argparse.Namespace(data_dir=str(tmp_path / "data"), tls_cert=str(given))
    said = advice(read_settings(options, {}))

    assert "was given with --tls-cert" in said
    assert "export SSL_CERT_FILE=ca.pem" in said
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, in one sentence."""
    (tmp_path / "file").write_text("x")
    assert main(["trust", "--data-dir", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file" / "tls") in capsys.readouterr().err
