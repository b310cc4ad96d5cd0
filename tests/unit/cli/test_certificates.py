"""The bridge's own certificate: made on first use, kept, renewed, and safe from other eyes."""

from __future__ import annotations

import argparse
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridge.cli.certificates import CA_TIME, SERVER_TIME, CertificateError, own_certificate
from bridge.cli.certified import certify
from bridge.cli.settings import SettingsError, read_settings

NOW = datetime.now(UTC)


def shaken_hands(folder: Path, name: str) -> None:
    """A client that trusts the folder's CA alone connects to a server of this name."""
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server.pem")
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, suppress(OSError):
            server.wrap_socket(theirs, server_side=True).close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with ours:
            client.wrap_socket(ours, server_hostname=name).close()
    finally:
        serving.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "bus.example", "10.0.0.7"])
def test_clients_trust_it_by_its_ca(tmp_path: Path, name: str) -> None:
    """For loopback and every name that was asked for, however strictly it is looked at."""
    made = own_certificate(tmp_path, ["bus.example", "10.0.0.7"], now=NOW)

    assert name in made.names
    shaken_hands(tmp_path, name)


def test_another_name_is_not_trusted(tmp_path: Path) -> None:
    """The certificate is for its names alone."""
    own_certificate(tmp_path, now=NOW)

    with pytest.raises(ssl.SSLCertVerificationError):
        shaken_hands(tmp_path, "bus.example")


def test_a_name_with_a_port(tmp_path: Path) -> None:
    """The Go SDK takes host and port for the name when its connection string has a port."""
    made = own_certificate(tmp_path, ["localhost:5671"], now=NOW)
    assert "localhost:5671" in made.names


def test_keys_are_their_owners(tmp_path: Path) -> None:
    """Only the owner can read a private key; everybody can read the CA's certificate."""
    own_certificate(tmp_path / "tls", now=NOW)

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "server.pem": 0o600}


def test_it_is_kept(tmp_path: Path) -> None:
    """A good certificate that is there is used, also when it has one name more than needed."""
    own_certificate(tmp_path, ["bus.example"], now=NOW)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    again = own_certificate(tmp_path, now=NOW + SERVER_TIME / 2)

    assert "bus.example" in again.names
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_name_more_and_an_end_near_renew_it(tmp_path: Path) -> None:
    """Below the same CA, so that clients go on."""
    begin = NOW - SERVER_TIME + timedelta(days=29)
    first = own_certificate(tmp_path, now=begin)
    ca = first.ca.read_bytes()
    named = own_certificate(tmp_path, ["bus.example"], now=begin)
    renewed = own_certificate(tmp_path, now=NOW)

    assert "bus.example" in named.names
    assert renewed.until > first.until
    assert first.ca.read_bytes() == ca
    shaken_hands(tmp_path, "localhost")


def test_a_ca_is_made_anew(tmp_path: Path) -> None:
    """When it would expire before the certificate, or its key is missing or another one."""
    ca = own_certificate(tmp_path, now=NOW).ca
    found = [ca.read_bytes()]
    own_certificate(tmp_path, now=NOW + CA_TIME - SERVER_TIME / 2)
    found.append(ca.read_bytes())
    (tmp_path / "ca.key").unlink()
    own_certificate(tmp_path, ["bus.example"], now=NOW)
    found.append(ca.read_bytes())
    other = own_certificate(tmp_path / "other", now=NOW)
    other.ca.with_name("ca.key").replace(tmp_path / "ca.key")
    own_certificate(tmp_path, ["bus2.example"], now=NOW)
    found.append(ca.read_bytes())

    assert len(set(found)) == 4
    shaken_hands(tmp_path, "localhost")


def test_bridges_that_start_at_once_agree(tmp_path: Path) -> None:
    """All of them have the certificate of the same CA."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: own_certificate(tmp_path, now=NOW), range(16)))

    assert len({each.until for each in made}) == 1
    shaken_hands(tmp_path, "localhost")


@pytest.mark.parametrize("name", ["ca.pem", "server.pem"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    """It is not replaced: clients may trust it."""
    own_certificate(tmp_path, now=NOW)
    (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\nnothing\n")

    with pytest.raises(CertificateError, match=f"{name} is no certificate. Remove"):
        own_certificate(tmp_path, now=NOW)


@pytest.mark.parametrize("name", ["büro.example", "a b", "https://bus"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    """It is an error, and nothing is made."""
    with pytest.raises(CertificateError, match="no host name"):
        own_certificate(tmp_path / "tls", [name], now=NOW)
    assert not (tmp_path / "tls").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It costs TLS on loopback; where TLS was asked for it is an error."""
    (tmp_path / "file").write_text("x")
    given = {"data_dir": str(tmp_path / "file")}

    assert certify(read_settings(argparse.Namespace(**given), {})).tls is None
    for option in ({"tls_name": "bus.example"}, {"tls_port": "5671,443"}):
        settings = read_settings(argparse.Namespace(**given, **option), {})
        with pytest.raises(SettingsError, match="--data-dir"):
            certify(settings)


def test_who_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    """On loopback, and elsewhere for the names that are asked for."""

    def has_tls(**options: str) -> bool:
        given = {"data_dir": str(tmp_path), **options}
        return certify(read_settings(argparse.Namespace(**given), {})).tls is not None

    assert has_tls()
    assert has_tls(host="0.0.0.0", tls_name="bus.example")
    assert not has_tls(host="0.0.0.0")
    with pytest.raises(SettingsError, match="--tls-name"):
        has_tls(host="0.0.0.0", tls_port="5671")
