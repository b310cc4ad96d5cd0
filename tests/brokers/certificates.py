"""Certificates that the tests make for themselves, with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

EXTENSIONS = {
    "server": "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "client": "extendedKeyUsage=clientAuth",
}


def make_certificates(folder: Path) -> None:
    """Make a CA (`ca.pem`), a server's certificate for localhost, and a client's.

    The client's is for the user `client`. Each has its key beside it: `server.pem`, `server.key`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key",
        "-out", "ca.pem", "-subj", "/CN=Test CA", "-days", "2",
    )  # fmt: skip
    for name, extension in EXTENSIONS.items():
        (folder / f"{name}.ext").write_text(extension)
        _openssl(
            folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key",
            "-out", f"{name}.csr", "-subj", f"/CN={name}",
        )  # fmt: skip
        _openssl(
            folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext",
        )  # fmt: skip


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
