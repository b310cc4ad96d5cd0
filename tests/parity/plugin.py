"""pytest plugin for Azure's Python tests: a bridge a worker, and stand-ins for Azure's tooling."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import certifi
import pytest

from tests.acceptance.issuer import TENANT, Issuer
from tests.fixtures.broker import Broker
from tests.parity import addresses
from tests.parity.serving import APPLICATION, issuing, serving, trusted

RABBITMQ = "BUSBRIDGE_PARITY_RABBITMQ"
"""Variable: the URLs of the RabbitMQ and of its management API, with a space between."""

FOLDER = "BUSBRIDGE_PARITY_FOLDER"
"""Variable: where `record.json` is written, a row a run of a test."""

SLEEPERS = (
    "large_messages_w_sleep",
    "keep_conn_alive",
    "resume_after_link_timeout",
    "session_cancel_scheduled_messages",
    "github_issue_6178",
    "schedule_multiple_messages",
    "session_schedule_message",
)
"""Parts of the names of tests that take from two to eleven minutes, the longest first."""
SLEEPER_S = 1800
ERROR_MAX = 6000
_SERVED = "served"

_ends = ExitStack()
_rows: dict[str, dict[str, Any]] = {}
_issuers: list[Issuer] = []
"""The one of this worker, once it runs."""


def pytest_configure(config: pytest.Config) -> None:
    """Start this worker's bridge, before any of Azure's modules is read."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        _ends.callback(_write)
    if config.getoption("numprocesses", None) and not is_worker:
        return
    url, management_url = os.environ[RABBITMQ].split()
    folder = Path(os.environ[FOLDER])
    issuer = _ends.enter_context(issuing(folder))
    bridge = _ends.enter_context(serving(Broker(url, management_url), folder, issuer))
    _issuers.append(issuer)
    addresses.resolve_to(bridge.port)
    _trust(str(trusted(bridge, issuer)))


def pytest_unconfigure() -> None:
    """End the bridge and the issuer."""
    _ends.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note whether the test looks for its server."""
    before = addresses.lookups.count
    try:
        return (yield)
    finally:
        item.user_properties.append((_SERVED, addresses.lookups.count > before))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what became of a test; what fails at its end has failed."""
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "xpassed"
    known = _rows.get(report.nodeid)
    if known and (outcome == "passed" or known["outcome"] == "failed"):
        known["is_served"] |= dict(report.user_properties).get(_SERVED, False)
        return
    _rows[report.nodeid] = _row(report.nodeid, outcome, report.longreprtext) | {
        "is_served": dict(report.user_properties).get(_SERVED, False)
    }


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep a file that cannot be read as a failure."""
    if report.failed:
        _rows[report.nodeid] = _row(report.nodeid, "failed", report.longreprtext)


def _row(nodeid: str, outcome: str, error: str) -> dict[str, Any]:
    path, _, rest = nodeid.partition("::")
    return {
        "file": Path(path).name,
        "test": rest.split("[")[0].rpartition("::")[2] or "collection",
        "outcome": outcome,
        "error": error[-ERROR_MAX:] if outcome == "failed" else "",
        "id": nodeid,
    }


def _write() -> None:
    (Path(os.environ[FOLDER]) / "record.json").write_text(json.dumps(list(_rows.values())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that sleep most, each on a worker of its own: all wait for the last.

    A worker is given two tests at first and keeps the second until the first has ended, so a short
    one stands behind each that sleeps. Of one a send takes minutes, as the SDK holds a lock of its
    own: it gets time.
    """
    for item in items:
        if SLEEPERS[0] in item.name:
            item.add_marker(pytest.mark.timeout(SLEEPER_S))
    items.sort(key=_place)
    count = sum(_place(item) < len(SLEEPERS) for item in items)
    sleepers, others = items[:count], items[count:]
    pairs = chain.from_iterable(zip(sleepers, others, strict=False))
    items[:] = [*pairs, *sleepers[len(others) :], *others[count:]]


def _place(item: pytest.Item) -> int:
    """Return where a test's kind stands among those that sleep; behind them for all others."""
    return next((at for at, part in enumerate(SLEEPERS) if part in item.name), len(SLEEPERS))


def _trust(ca: str) -> None:
    certifi.where = lambda: ca
    os.environ["REQUESTS_CA_BUNDLE"] = os.environ["SSL_CERT_FILE"] = ca
    aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(ca)  # made at its import


def _stand_in() -> None:
    """Put modules of ours where the tests import those that make resources at Azure."""
    from azure.identity import ClientSecretCredential
    from azure.identity.aio import ClientSecretCredential as AsyncClientSecretCredential

    from tests.parity import preparers

    def get_credential(*, is_async: bool = False, **_: Any) -> Any:
        kind = AsyncClientSecretCredential if is_async else ClientSecretCredential
        return kind(
            TENANT,
            APPLICATION.id,
            APPLICATION.secret,
            authority=_issuers[0].url,
            disable_instance_discovery=True,
        )

    def ignore(*_: Any, **__: Any) -> None:
        pass

    def unchanged(test: Callable[..., Any]) -> Callable[..., Any]:
        return test

    attributes = {"is_live": True, "await_prepared_test": staticmethod(unchanged)}
    case = type("AzureMgmtRecordedTestCase", (), attributes)
    errors = {
        name: type(name, (Exception,), {}) for name in ("AzureHttpError", "AzureConflictHttpError")
    }
    rights = type("AccessRights", (), {"manage": "Manage", "send": "Send", "listen": "Listen"})
    groups = {
        "CachedResourceGroupPreparer": preparers.Group,
        "RandomNameResourceGroupPreparer": preparers.Group,
    }
    _module(
        "devtools_testutils",
        **groups,
        AzureMgmtRecordedTestCase=case,
        AzureRecordedTestCase=case,
        get_credential=get_credential,
        recorded_by_proxy=unchanged,
        set_custom_default_matcher=ignore,
    )
    _module(
        "devtools_testutils.sanitizers",
        add_remove_header_sanitizer=ignore,
        add_general_regex_sanitizer=ignore,
        add_oauth_response_sanitizer=ignore,
    )
    _module("devtools_testutils.aio", recorded_by_proxy_async=unchanged)
    _module("azure.common", **errors)
    _module("azure.mgmt", AccessRights=rights)
    _module("azure.mgmt.servicebus")
    _module("azure.mgmt.servicebus.models", AccessRights=rights)
    sys.modules["servicebus_preparer"] = sys.modules["sb_env_loader"] = preparers


def _module(name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(content, __path__=[])
    sys.modules[name] = module


_stand_in()  # before the tests' own conftest is read


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """It stands for Azure's recorder of calls; here nothing is recorded."""
