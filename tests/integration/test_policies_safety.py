"""`busbridge policies apply` and the messages that are there: refused, counted, killed, doubled."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest

from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually
from tests.integration.declared import count
from tests.integration.test_policies_command import INVOICES, ORDERS, Command
from tests.unit.policies.inputs import INPUTS, Input

pytestmark = pytest.mark.long


@pytest.fixture
def busbridge(
    broker: Broker, vhost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """The command by the management API."""
    command = Command(broker, vhost, tmp_path, "management", capsys)
    yield command
    main_out = command("remove", "--allow")
    assert main_out[0] == 0


class Proxy(ThreadingHTTPServer):
    """The management API; who has changed something so many times is killed there and then."""

    def __init__(self, target: str, changes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.changes = changes
        self.victim = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        login = self.target.netloc.rpartition("@")[0]
        return f"http://{login + '@' if login else ''}127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        target = self.server.target
        headers = {key: v for key, v in self.headers.items() if key != "Accept-Encoding"}
        connection = HTTPConnection(target.hostname or "", target.port)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if self.command != "GET":
            self.server.changes -= 1
            if self.server.changes == 0:
                os.kill(self.server.victim, signal.SIGKILL)
                return
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def started(file: str, vhost: str, url: str, *words: str) -> subprocess.Popen[str]:
    """An apply in a process of its own."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "bridge.cli.main", "policies", "apply", file),
            *("--management-url", url, "--vhost", vhost, *words),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


EXPIRING = model.Queue(name="theirs", auto_delete_on_idle_ms=300_000)
SLOW = model.Queue(name="orders", default_message_time_to_live_ms=30_000, max_delivery_count=4)


def test_a_users_queue_with_its_messages_is_at_stake_though_no_policy_of_ours_was_there(
    busbridge: Command, pika_connection: pika.BlockingConnection, vhost: str
) -> None:
    """Every change that can cost a message needs `--allow`; the plan says how many there are."""
    file = busbridge.file(model.Queue(name="theirs"))
    assert busbridge("apply", file, "--flavour", "plain")[0] == 0
    channel = pika_connection.channel()
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "theirs", b"kept", mandatory=True)
    for row in busbridge.broker.management("GET", f"/api/policies/{vhost}"):
        busbridge.broker.management("DELETE", f"/api/policies/{vhost}/{row['name']}")
    accepted = ("--flavour", "plain")
    eventually(lambda: "theirs: 3\n" in busbridge("plan", busbridge.file(EXPIRING), *accepted)[1])
    code, said = busbridge("apply", busbridge.file(EXPIRING), *accepted)
    assert code == 5
    assert "(destructive): expires deletes a queue that is unused for so long" in said
    assert busbridge.broker.management("GET", f"/api/policies/{vhost}") == []
    assert count(channel, "theirs") == 3
    _, said = busbridge("plan", busbridge.file(EXPIRING), *accepted, "--json")
    form = json.loads(said)
    assert form["counts"]["destructive"] >= 1
    assert {"theirs": 3} in [change["messagesAtStake"] for change in form["changes"]]
    assert busbridge("apply", busbridge.file(EXPIRING), *accepted, "--allow")[0] == 0
    assert busbridge("check", busbridge.file(EXPIRING), *accepted)[0] == 0


@pytest.mark.parametrize("changes", [1, 3])
def test_an_apply_that_is_killed_half_way_is_finished_by_the_next(
    busbridge: Command, tmp_path: Path, changes: int
) -> None:
    """Nothing half done stays, wherever the apply was killed."""
    assert busbridge("apply", busbridge.file(INVOICES, ORDERS))[0] == 0
    proxy = Proxy(busbridge.broker.management_url, changes)
    file = busbridge.file(SLOW, model.Queue(name="more", max_delivery_count=3))
    process = started(file, busbridge.vhost, proxy.url, "--allow")
    proxy.victim = process.pid
    said, _ = process.communicate(timeout=120)
    proxy.shutdown()
    proxy.server_close()
    assert process.returncode == -signal.SIGKILL, said
    assert busbridge("apply", file, "--allow")[0] == 0
    assert busbridge("check", file)[0] == 0
    whole = busbridge.file(SLOW, INVOICES, model.Queue(name="more", max_delivery_count=3))
    assert busbridge("check", whole, "--prune") == (0, "Nothing to change.\n")


def test_two_applies_at_once_converge(busbridge: Command, tmp_path: Path) -> None:
    """Each with queues of its own, of equal settings, so that they share a policy."""
    files = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        made = busbridge.file(*(model.Queue(name=f"{name}-{number}") for number in range(4)))
        files.append(str(folder / "namespace.json"))
        Path(files[-1]).write_text(Path(made).read_text())
    processes = [started(f, busbridge.vhost, busbridge.broker.management_url) for f in files]
    for process in processes:
        said, _ = process.communicate(timeout=120)
        assert process.returncode in (0, 1), said
    for file in files:
        assert busbridge("apply", file)[0] == 0
    for file in files:
        assert busbridge("check", file) == (0, "Nothing to change.\n")


def test_what_is_lost_is_named_and_stops_an_apply(
    busbridge: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 3 and nothing done, until it is accepted; a new loss stops it again."""
    lossy = model.Queue(name="orders", requires_session=True)
    words = ["--flavour", "plain"]
    assert busbridge.elsewhere(busbridge.vhost, "apply", busbridge.file(lossy), *words) == 3
    said = capsys.readouterr()
    assert "lost: orders:RequiresSession: No sessions." in said.err
    assert "--accept-losses 'orders:RequiresSession" in said.err
    assert "1 loss" in said.out
    assert busbridge("check", busbridge.file(lossy), *words)[0] == 4
    names = said.err.rpartition("--accept-losses '")[2].partition("'")[0]
    accepted = [*words, "--accept-losses", names]
    assert busbridge("apply", busbridge.file(lossy), *accepted)[0] == 0
    worse = model.Queue(name="orders", requires_session=True, user_metadata="x")
    assert busbridge("apply", busbridge.file(worse), *accepted)[0] == 3


def test_a_plan_is_carried_out_as_it_was_shown_or_not_at_all(
    busbridge: Command, tmp_path: Path
) -> None:
    """It is refused when the broker has changed since."""
    kept = tmp_path / "orders.plan"
    assert busbridge("plan", busbridge.file(ORDERS), "--out", str(kept))[0] == 0
    assert kept.stat().st_mode & 0o777 == 0o600
    assert busbridge("apply", busbridge.file(INVOICES))[0] == 0
    assert busbridge("apply", str(kept))[0] == 5
    assert busbridge("plan", busbridge.file(ORDERS), "--out", str(kept))[0] == 0
    assert busbridge("apply", str(kept))[0] == 0
    assert busbridge("check", busbridge.file(ORDERS, INVOICES))[0] == 0
    assert busbridge("check", str(kept))[0] == 2


def test_a_ceiling_that_is_taken_away_is_gone(busbridge: Command) -> None:
    """With the bridge and without it."""
    for flavour in ("plain", "bridge"):
        words = (busbridge.file(INVOICES), "--flavour", flavour)
        assert busbridge("apply", *words, "--ceiling-ttl", "P1D", "--allow")[0] == 0
        path = f"/api/operator-policies/{busbridge.vhost}"
        assert len(busbridge.broker.management("GET", path)) == 1
        assert busbridge("apply", *words)[0] == 0
        assert busbridge.broker.management("GET", path) == []
        assert busbridge("remove", "--allow")[0] == 0


IN_MAKE_TEST = frozenset({"az.json", "masstransit.xml", "rules.template.json"})
"""Lists, names with `~`, and a template with rules; the others are read by unit tests, too."""


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.soak] * (each.name not in IN_MAKE_TEST))
        for each in INPUTS
    ],
)
def test_inputs_in_the_shape_of_public_ones_are_applied_and_checked(
    busbridge: Command, given: Input
) -> None:
    """Both flavours, one after the other; a second apply does nothing."""
    for flavour in ("bridge", "plain"):
        words = (given.path, *given.options, "--flavour", flavour, "--accept-losses", "*")
        code, said = busbridge("apply", *words)
        assert code == 0, said
        assert busbridge("check", *words, "--prune")[0] == 0
        assert busbridge("remove", "--allow")[0] == 0


def test_an_input_that_could_not_be_read_whole_never_prunes(
    busbridge: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entity that is missing in it may be in the part that could not be read."""
    assert busbridge("apply", busbridge.file(ORDERS, INVOICES))[0] == 0
    template = tmp_path / "template.json"
    queues = [
        {
            "type": "Microsoft.ServiceBus/namespaces/queues",
            "apiVersion": "2021-11-01",
            "name": name,
        }
        for name in ("ns/orders", "[concat('ns/', reference('elsewhere').outputs.name.value)]")
    ]
    schema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
    template.write_text(json.dumps({"$schema": schema, "resources": queues}))
    words = ("apply", str(template), "--prune", "--allow", "--accept-losses", "*")
    assert busbridge.elsewhere(busbridge.vhost, *words) == 2
    said = capsys.readouterr()
    assert "this input is not known to be whole:\n" in said.err
    assert "Mend it, or go without --prune." in said.err
    assert busbridge("check", busbridge.file(INVOICES))[0] == 0


def test_somebody_at_a_terminal_is_asked(busbridge: Command) -> None:
    """Nothing is done unless the answer is yes; `--yes` asks nothing."""
    url, vhost = busbridge.broker.management_url, busbridge.vhost
    file = busbridge.file(ORDERS)
    for answer, words, code in (("n", (), 5), ("", ("--yes",), 0), ("y", (), 0)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bridge.cli.main", "policies", "apply", file, *words),
                *("--management-url", url, "--vhost", vhost),
            ],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        process.communicate(timeout=120)
        os.close(ours)
        assert process.returncode == code
        applied = busbridge("check", file)[0]
        assert applied == (4 if code else 0)
        if not answer:
            assert busbridge("remove", "--allow")[0] == 0
