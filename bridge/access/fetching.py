"""Fetching of an issuer's keys: from a file, or over HTTPS, with no redirects and within limits."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp

from bridge.background.errors import OutsideError
from bridge.model.errors import ArgumentError
from bridge.model.issuers.issuer import Issuer, KeySource
from bridge.model.issuers.web_keys import (
    DOCUMENT_BYTES_MAX,
    KeySet,
    read_document,
    read_keys,
)

BEARER_BYTES_MAX = 65_536


class FetchFailed(OutsideError):
    """Keys could not be had; the text says from where and why."""


async def fetch_keys(issuer: Issuer) -> KeySet:
    """Return an issuer's keys.

    Raises:
        FetchFailed: the file cannot be read, the host does not answer, or what it says is not used.
    """
    source = issuer.keys
    if source.file:
        return await asyncio.to_thread(keys_of_file, source.file)
    context, headers = await asyncio.to_thread(_means, source)
    try:
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            address = source.url
            if not address:
                found = await _get(session, source.discovery)
                address = _address(issuer, source.discovery, found)
            document = await _get(session, address)
    except (OSError, UnicodeError, aiohttp.ClientError) as error:  # a host that is no name
        raise FetchFailed(f"{source}: {error or type(error).__name__}") from error
    try:
        return await asyncio.to_thread(read_keys, document)
    except ArgumentError as error:
        raise FetchFailed(f"{address}: {error}") from None


def keys_of_file(name: str) -> KeySet:
    """Return the keys in a JWKS file.

    Raises:
        FetchFailed: the file cannot be read, or is no JWKS.
    """
    try:
        return read_keys(_read(name, DOCUMENT_BYTES_MAX))
    except ArgumentError as error:
        raise FetchFailed(f"{name}: {error}") from None


def _read(name: str, bytes_max: int) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(bytes_max + 1)
    except OSError as error:
        raise FetchFailed(f"{name} cannot be read: {error.strerror}") from error


def _means(source: KeySource) -> tuple[ssl.SSLContext, dict[str, str]]:
    """Return what a source is asked with; both files are read anew for each fetch."""
    headers = {"Accept": "application/json"}
    if source.bearer:
        token = _read(source.bearer, BEARER_BYTES_MAX).decode("ascii", "replace").strip()
        if not token.isprintable() or not token.isascii() or len(token) > BEARER_BYTES_MAX:
            raise FetchFailed(f"{source.bearer} holds no token")
        headers["Authorization"] = f"Bearer {token}"
    try:
        return ssl.create_default_context(cafile=source.ca or None), headers
    except (OSError, ssl.SSLError) as error:
        raise FetchFailed(f"{source.ca} cannot be used: {error}") from error


async def _get(session: aiohttp.ClientSession, address: str) -> bytes:
    """Return the document at an address."""
    async with session.get(address, allow_redirects=False) as response:
        if response.status != 200:
            raise FetchFailed(f"{address} answers with {response.status}")
        content = bytearray()
        async for piece in response.content.iter_any():
            content += piece
            if len(content) > DOCUMENT_BYTES_MAX:
                raise FetchFailed(f"{address} has more than {DOCUMENT_BYTES_MAX} bytes")
        return bytes(content)


def _address(issuer: Issuer, discovery: str, document: bytes) -> str:
    """Return the address of the JWKS that a discovery document names."""
    try:
        found = read_document(document)
    except ArgumentError as error:
        raise FetchFailed(f"{discovery}: {error}") from None
    if found.get("issuer") not in issuer.names:
        raise FetchFailed(f"{discovery} is of another issuer than {issuer}")
    address = found.get("jwks_uri")
    if not isinstance(address, str) or not address.startswith("https://"):
        raise FetchFailed(f"{discovery} names no jwks_uri that begins with https://")
    return address
