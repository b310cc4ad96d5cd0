"""`busbridge serve`: its options, its ports, its `ready` line, its sentences and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pika
import pytest
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.exceptions import ServiceBusError
from prometheus_client.parser import text_string_to_metric_families

from bridge.broker.node.ports import Ports
from bridge.model.access import sign
from bridge.testing.http_answers import http_answer
from bridge.topology.definitions import namespace_parameter_name
from tests.acceptance.sdk import client_of, receive, send, take
from tests.fixtures import unkilled
from tests.fixtures.bridge import Bridge, StartBridge, bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.prepared import Process
from tests.fixtures.waiting import ENDS_S, eventually

ENTITIES = {"orders": {"LockDuration": "PT30S", "MaxDeliveryCount": 10}}

RULES = {
    "rules": [
        {
            "name": "owner",
            "primaryKey": "first-key-of-mine",
            "secondaryKey": "second-key-of-mine",
            "rights": ["Send", "Listen", "Manage"],
        }
    ]
}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rules file with one rule."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES))
    return path


def serve(
    *arguments: str, environment: Mapping[str, str] | None = None, within_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a `serve` that is expected to end by itself."""
    pipe = subprocess.PIPE
    with Process(
        [sys.executable, "-m", "bridge.cli.main", "serve", *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=within_s)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def expect_sentence(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """It ended with this code and one line on standard error that holds these parts."""
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert lines, "no sentence"
    assert lines[-1].startswith("busbridge: "), done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in lines[-1], lines[-1]


def connection_string(port: int, name: str, key: str) -> str:
    """The connection string of a rule."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )


def test_the_ready_line_holds_the_connection_string(
    broker: Broker, vhost: str, config: Path
) -> None:
    """It is what an SDK needs, as it stands, with the well-known key; the process is a new one."""
    bridge = bridge_of(broker, vhost, config=config, program=unkilled.__name__)
    bridge.start()
    try:
        expected = connection_string(bridge.port, "RootManageSharedAccessKey", "SAS_KEY_VALUE")
        assert bridge.connection_string == expected
    finally:
        bridge.kill()


def test_what_a_file_defines_forwards(start_bridge: StartBridge, tmp_path: Path) -> None:
    """A definition that a file gives forwards."""
    queues = [{"Name": "source", "Properties": {"ForwardTo": "plain"}}, {"Name": "plain"}]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": []}
    config = tmp_path / "features.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    bridge = start_bridge(config=config)
    with client_of(bridge) as client:
        send(client, "source", "one")
        with client.get_queue_receiver("plain") as receiver:
            take(receiver)


def test_what_the_namespace_has_is_kept(
    start_bridge: StartBridge, broker: Broker, vhost: str
) -> None:
    """Rules and tier that `busbridge policies apply` has written outlast every start."""
    rule = {"name": "till", "primaryKey": "key-of-till", "rights": ["Send", "Listen"]}
    name = namespace_parameter_name(vhost)
    path = f"/api/global-parameters/{urllib.parse.quote(name, safe='')}"
    form = {"kind": "namespace", "name": "shop", "tier": "Premium", "authorizationRules": [rule]}
    broker.management("PUT", path, {"name": name, "value": form})

    for flags, tier in ((), "Premium"), (("--tier", "Standard"), "Standard"):
        bridge = start_bridge(*flags)
        text = connection_string(bridge.port, "till", "key-of-till")
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            with client.get_queue_sender("orders") as sender:
                limit_bytes = sender.create_message_batch().max_size_in_bytes
            send(client, "orders", "x")
            with client.get_queue_receiver("orders") as receiver:
                take(receiver)
        bridge.stop()
        found = broker.management("GET", path)["value"]
        assert (found["name"], found["tier"]) == ("sbemulatorns", tier)
        assert [each["name"] for each in found["authorizationRules"]] == ["till"]
        assert (limit_bytes > 1_000_000) is (tier == "Premium")


def test_every_option_is_also_a_variable(
    broker: Broker, vhost: str, config: Path, rules: Path
) -> None:
    """A bridge that is told everything by its environment runs as if told by options."""
    ports = Ports(2)
    port, admin_port = ports.numbers
    bridge = Bridge((), amqp_url=broker.url_of(vhost), port=1, admin_port=1)
    bridge._arguments = ()
    bridge.admin_url = f"http://127.0.0.1:{admin_port}"
    try:
        bridge.start(
            BUSBRIDGE_RABBITMQ_URL=broker.url_of(vhost),
            BUSBRIDGE_MANAGEMENT_URL=broker.management_url,
            BUSBRIDGE_HOST="127.0.0.1",
            BUSBRIDGE_PORT=str(port),
            BUSBRIDGE_ADMIN_PORT=str(admin_port),
            BUSBRIDGE_CONFIG=str(config),
            BUSBRIDGE_AUTH=str(rules),
            BUSBRIDGE_LOG_LEVEL="debug",
        )
        own = connection_string(port, "owner", "second-key-of-mine")
        with ServiceBusClient.from_connection_string(own, retry_total=0) as client:
            send(client, "orders", "hello")
        assert json.loads(bridge.get("/health/ready"))["status"] == "ready"
    finally:
        bridge.kill()


def test_a_taken_default_port_gives_way(broker: Broker, vhost: str) -> None:
    """The bridge says that 5672 is taken, and takes the next free one."""
    with closing(socket.socket()) as blocker:
        blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            blocker.bind(("127.0.0.1", 5672))
            blocker.listen()
        except OSError:
            pass  # somebody else listens there already: as good
        bridge = bridge_of(broker, vhost)
        bridge._arguments = tuple(
            argument
            for option, value in zip(bridge._arguments[::2], bridge._arguments[1::2], strict=True)
            if option != "--port"
            for argument in (option, value)
        )
        try:
            bridge.start()
            found = re.search(r"Endpoint=sb://localhost:(\d+);", bridge.connection_string)
            assert found is not None
            number = int(found.group(1))
            assert number > 5672
            (told,) = [line for line in bridge.lines if line.startswith("Port ")]
            assert re.fullmatch(
                f"Port 5672 is taken by .*process.*; --port is {number} instead.", told
            )
        finally:
            bridge.kill()


def own_name() -> str:
    """This process's name, as the system has it."""
    return Path("/proc/self/comm").read_text().strip()


def test_a_taken_port_that_was_asked_for(broker: Broker, vhost: str) -> None:
    """The error names the port and the process that listens on it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as blocker:
        port = str(blocker.getsockname()[1])
        done = serve("--rabbitmq-url", broker.url_of(vhost), "--port", port)

    expect_sentence(done, 2, f"Port {port}", f"is taken by {own_name()} (process {os.getpid()})")


def test_the_well_known_key_stays_on_loopback(
    broker: Broker, vhost: str, rules: Path, start_bridge: StartBridge
) -> None:
    """On another address the bridge starts with rules of one's own only, and prints no key."""
    done = serve("--rabbitmq-url", broker.url_of(vhost), "--host", "0.0.0.0")
    expect_sentence(done, 2, "0.0.0.0", "--auth")
    (rule,) = RULES["rules"]
    for field in ("primaryKey", "secondaryKey"):
        known = rules.with_name("known.json")
        known.write_text(json.dumps({"rules": [{**rule, field: "SAS_KEY_VALUE"}]}))
        done = serve("--host", "0.0.0.0", "--auth", str(known))
        expect_sentence(done, 2, str(known), "well-known key")

    bridge = start_bridge("--host", "0.0.0.0", "--auth", str(rules))

    assert "of-mine" not in "\n".join(bridge.lines)
    assert bridge.connection_string.startswith(f"Endpoint=sb://localhost:{bridge.port};")
    well_known = connection_string(bridge.port, "RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with (
        pytest.raises(ServiceBusError),
        ServiceBusClient.from_connection_string(well_known, retry_total=0) as client,
    ):
        send(client, "orders", "no")


def test_it_ends_within_five_seconds(start_bridge: StartBridge) -> None:
    """SIGTERM ends it in time, code 0, no complaints, while a receiver waits and one is locked."""
    bridge = start_bridge()
    with client_of(bridge) as client:
        send(client, "orders", "locked", "done")
        with client.get_queue_receiver("orders") as receiver:
            locked, done = receive(receiver, 2)
            receiver.complete_message(done)
            errors: list[Exception] = []

            def wait() -> None:
                try:
                    receiver.receive_messages(1, max_wait_time=30)
                except Exception as error:
                    errors.append(error)

            waiting = threading.Thread(target=wait)
            waiting.start()
            begin = time.monotonic()
            code = bridge.stop()
            assert time.monotonic() - begin < ENDS_S
            waiting.join(120)

    assert code == 0
    told = bridge.lines[[" serve.stopping" in line for line in bridge.lines].index(True) :]
    assert [line for line in told if " info " not in line] == []
    bridge.start()
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        (again,) = take(receiver)
        assert str(again) == str(locked)
        assert (again.delivery_count or 0) <= 1, "given to the one who waited as well"


@pytest.mark.long
def test_it_ends_in_time_when_rabbitmq_stands_still(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """An answer that does not come holds nothing up: five seconds, code 0, with a lock held."""
    own = start_broker()
    assert own.node is not None
    bridge = start_bridge(on=own, vhost="/")
    with client_of(bridge) as client:
        send(client, "orders", "locked")
        with client.get_queue_receiver("orders") as receiver:
            (locked,) = receive(receiver)
            own.node.signal(signal.SIGSTOP)
            try:
                begin = time.monotonic()
                code = bridge.stop(within_s=120)
                took_s = time.monotonic() - begin
            finally:
                own.node.signal(signal.SIGCONT)
            with pytest.raises(ServiceBusError):
                receiver.complete_message(locked)

    assert code == 0
    assert took_s < ENDS_S


def test_tls(start_bridge: StartBridge, tmp_path: Path) -> None:
    """With a certificate the SDK connects over TLS, on a port beside the plain one."""
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*request, *names, *files], cwd=tmp_path, check=True, capture_output=True)
    ports = Ports(1)
    (port,) = ports.numbers
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    bridge = start_bridge(*("--tls-cert", certificate, "--tls-key", key, "--tls-port", str(port)))
    with ServiceBusClient.from_connection_string(
        bridge.connection_string.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://localhost:{port}",
        transport_type=TransportType.Amqp,
        connection_verify=certificate,
        retry_total=0,
    ) as client:
        send(client, "orders", "over TLS")
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        assert [str(message) for message in take(receiver)] == ["over TLS"]


def test_ports_of_tls_alone(start_bridge: StartBridge) -> None:
    """Several, with the bridge's own certificate; nothing is taken in clear there."""
    ports = Ports(2)
    bridge = start_bridge("--tls-port", ",".join(map(str, ports.numbers)))
    for port in ports.numbers:
        with ServiceBusClient.from_connection_string(
            bridge.connection_string.replace("UseDevelopmentEmulator=true;", ""),
            custom_endpoint_address=f"sb://localhost:{port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(bridge.ca),
            retry_total=0,
        ) as client:
            send(client, "orders", "over TLS")
        with closing(socket.create_connection(("127.0.0.1", port), timeout=120)) as plain:
            plain.sendall(b"AMQP\x03\x01\x00\x00")
            assert plain.recv(8) == b""


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--port", "high"], ["--port", "'high'"]),
        (["--port", "65536"], ["--port", "65535"]),
        (["--rabbitmq-url", "http://localhost"], ["--rabbitmq-url", "amqp://"]),
        (["--management-url", "http://localhost:15672"], ["--rabbitmq-url"]),
        (["--config", "/nowhere/Config.json"], ["--config", "/nowhere/Config.json"]),
        (["--auth", "/nowhere/rules.json"], ["--auth", "/nowhere/rules.json"]),
        (["--log-level", "loud"], ["--log-level", "debug"]),
        (["--tls-key", "key.pem"], ["--tls-cert"]),
        (["--tls-port", "5671,https"], ["--tls-port", "'https'"]),
        (["--tls-name", "no name"], ["'no name'"]),
        (["--tier", "Gold"], ["--tier", "Premium"]),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], parts: list[str]) -> None:
    """Each ends the command with code 2 and one sentence."""
    expect_sentence(serve(*arguments), 2, *parts)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "Config.json"),
        ('{"UserConfig": {"Namespaces": []}}', "Namespaces"),
        ("[]", "Config.json"),
        (
            json.dumps(
                {
                    "UserConfig": {
                        "Namespaces": [
                            {
                                "Name": "sbemulatorns",
                                "Queues": [
                                    {"Name": "orders", "Properties": {"LockDuration": "PT1H"}}
                                ],
                            }
                        ]
                    }
                }
            ),
            "LockDuration",
        ),
    ],
)
def test_a_bad_config(tmp_path: Path, text: str, part: str) -> None:
    """A file that is not what it should be ends the command before anything is started."""
    path = tmp_path / "Config.json"
    path.write_text(text)
    done = serve("--config", str(path))

    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert part in done.stderr


@pytest.mark.parametrize("option", ["--config", "--auth"])
def test_a_file_that_is_no_text(tmp_path: Path, option: str) -> None:
    """It is named, and what to do about it."""
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xc3(\x00")
    expect_sentence(serve(option, str(path)), 2, str(path), "UTF-8")


def test_a_config_as_powershell_writes_it(tmp_path: Path, broker: Broker, vhost: str) -> None:
    """UTF-16 with its mark is read, and so is UTF-8 with one."""
    namespace = {"Name": "sbemulatorns", "Queues": [{"Name": "orders"}], "Topics": []}
    document = json.dumps({"UserConfig": {"Namespaces": [namespace]}})
    for encoding in ("utf-16", "utf-8-sig"):
        path = tmp_path / "Config.json"
        path.write_bytes(document.encode(encoding))
        bridge = bridge_of(broker, vhost, config=path)
        try:
            bridge.start()
            with client_of(bridge) as client:
                send(client, "orders", encoding)
        finally:
            bridge.kill()


def test_a_data_folder_that_cannot_be_used(tmp_path: Path) -> None:
    """The reason is a sentence."""
    path = tmp_path / "file"
    path.write_text("x")
    expect_sentence(serve("--data-dir", str(path)), 1, str(path), "Not a directory")


def test_an_address_that_is_none(rules: Path) -> None:
    """Neither names that nobody knows nor addresses of others are listened on."""
    for host in ("no.such.host.invalid", "192.0.2.1"):
        done = serve("--host", host, "--auth", str(rules), "--rabbitmq-url", "amqp://localhost:1")
        expect_sentence(done, 2, host, "--host")


def test_bad_rules(tmp_path: Path) -> None:
    """A rules file that is none ends the command; what it says holds no key."""
    path = tmp_path / "rules.json"
    path.write_text('{"rules": [{"name": "x", "primaryKey": "hidden", "rights": ["Look"]}]}')
    done = serve("--auth", str(path))

    expect_sentence(done, 2, "rights")
    assert "hidden" not in done.stderr


def test_no_rabbitmq_there() -> None:
    """The error is one sentence with the address."""
    ports = Ports(1)
    (port,) = ports.numbers
    done = serve("--rabbitmq-url", f"amqp://guest:secret-word@127.0.0.1:{port}")

    expect_sentence(done, 1, "127.0.0.1")
    assert "secret-word" not in done.stderr


def test_a_wrong_port_beside_a_good_management_api(broker: Broker, vhost: str) -> None:
    """One sentence that names it, and where to look."""
    with Ports(1) as ports:
        url = f"amqp://guest:guest@127.0.0.1:{ports.numbers[0]}/{vhost}"
        done = serve("--rabbitmq-url", url, "--management-url", broker.management_url)

    expect_sentence(done, 1, f"127.0.0.1:{ports.numbers[0]}", "--rabbitmq-url", "management API")


def test_another_address_of_loopback(start_bridge: StartBridge) -> None:
    """`ready` names it: `localhost` does not lead there. Its certificate is for it, too."""
    bridge = start_bridge("--host", "127.0.0.2")
    assert bridge.connection_string.startswith(f"Endpoint=sb://127.0.0.2:{bridge.port};")
    with client_of(bridge) as client:
        send(client, "orders", "x")
    with ServiceBusClient.from_connection_string(
        bridge.connection_string.replace("UseDevelopmentEmulator=true;", ""),
        custom_endpoint_address=f"sb://127.0.0.2:{bridge.port}",
        connection_verify=str(bridge.ca),
        retry_total=0,
    ) as client:
        send(client, "orders", "over TLS")


def test_a_variable_that_is_none_is_named(start_bridge: StartBridge) -> None:
    """Once, at the start, with the one that was meant."""
    bridge = start_bridge(BUSBRIDGE_CONFG="Config.json")
    (told,) = [line for line in bridge.lines if "settings.unknown_variable" in line]
    assert "name=BUSBRIDGE_CONFG similar=BUSBRIDGE_CONFIG" in told


def test_a_wrong_password(broker: Broker, vhost: str) -> None:
    """RabbitMQ refuses the login: one sentence, without the password."""
    url = broker.url_of(vhost).replace("guest:guest", "guest:secret-word")
    management_url = broker.management_url.replace("guest:guest@", "")
    done = serve("--rabbitmq-url", url, "--management-url", management_url)

    expect_sentence(done, 1, "user")
    assert "secret-word" not in done.stderr


@pytest.fixture
def user_of(broker: Broker, vhost: str) -> Iterator[Callable[..., list[str]]]:
    """Options for a user of RabbitMQ who has these tags and these rights on the virtual host."""
    made = []

    def options(tags: str, **rights: str) -> list[str]:
        name = f"tests-{len(made)}-{vhost}"
        made.append(name)
        broker.management("PUT", f"/api/users/{name}", {"password": "p", "tags": tags})
        all_rights = {"configure": ".*", "write": ".*", "read": ".*"} | rights
        broker.management("PUT", f"/api/permissions/{vhost}/{name}", all_rights)
        address = broker.url_of(vhost).partition("@")[2]
        http = broker.management_url.partition("@")[2]
        return [
            *("--rabbitmq-url", f"amqp://{name}:p@{address}"),
            *("--management-url", f"http://{http}"),
        ]

    yield options
    for name in made:
        broker.management("DELETE", f"/api/users/{name}")


def test_least_rights(
    user_of: Callable[..., list[str]], config: Path, broker: Broker, vhost: str
) -> None:
    """The rights that docs/operations.md asks for are enough."""
    options = (*user_of("policymaker,monitoring"), "--config", str(config))
    bridge = Bridge(options, amqp_url=broker.url_of(vhost))
    try:
        bridge.start()
        with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
            send(client, "orders", "hello")
            assert [str(message) for message in take(receiver)] == ["hello"]
    finally:
        bridge.kill()


@pytest.mark.parametrize(
    ("tags", "rights", "parts"),
    [
        ("management", {}, ["401", "policymaker"]),
        ("", {}, ["401", "policymaker"]),
        ("policymaker", {"configure": "^$"}, ["403", "configure"]),
        ("policymaker", {"write": "^$"}, ["403", "write"]),
        ("policymaker", {"read": "^$"}, ["403", "read"]),
    ],
)
def test_too_few_rights(
    user_of: Callable[..., list[str]],
    config: Path,
    tags: str,
    rights: dict[str, str],
    parts: list[str],
) -> None:
    """Without one of them the bridge ends and says what RabbitMQ refused, and what is needed."""
    done = serve(*user_of(tags, **rights), "--config", str(config))

    expect_sentence(done, 1, *parts)


def test_a_virtual_host_of_any_name(broker: Broker, config: Path) -> None:
    """It is percent-encoded in the URL; one that is not there is named."""
    name = "team a/büro"
    quoted = urllib.parse.quote(name, safe="")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    broker.management("PUT", f"/api/vhosts/{quoted}", {})
    try:
        broker.management("PUT", f"/api/permissions/{quoted}/guest", everything)
        bridge = bridge_of(broker, name, config=config)
        try:
            bridge.start()
            with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
                send(client, "orders", "hello")
                assert [str(message) for message in take(receiver)] == ["hello"]
        finally:
            bridge.stop()
        rows = broker.management("GET", f"/api/queues/{quoted}")
        assert "orders" in {row["name"] for row in rows}
    finally:
        broker.management("DELETE", f"/api/vhosts/{quoted}")

    options = ("--rabbitmq-url", broker.url_of(name), "--management-url", broker.management_url)
    done = serve(*options)
    expect_sentence(done, 1, name)


def test_no_management_api(broker: Broker, vhost: str) -> None:
    """Without the plugin the bridge ends and names the address that does not answer."""
    ports = Ports(1)
    (port,) = ports.numbers
    url = f"http://127.0.0.1:{port}"
    done = serve("--rabbitmq-url", broker.url_of(vhost), "--management-url", url)

    expect_sentence(done, 1, "management", url)


def test_a_config_that_contradicts_what_exists(
    start_bridge: StartBridge, broker: Broker, vhost: str, tmp_path: Path
) -> None:
    """A difference that cannot be changed in place is an error that names the entity."""
    start_bridge().stop()
    queue = {"Name": "orders", "Properties": {"EnablePartitioning": True}}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": []}
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    done = serve(
        *("--rabbitmq-url", broker.url_of(vhost), "--management-url", broker.management_url),
        *("--config", str(path)),
    )

    expect_sentence(done, 1, "orders")


@pytest.mark.long
def test_the_private_rabbitmq_keeps_its_data(tmp_path: Path, config: Path) -> None:
    """It ends with its bridge, also a killed one; the next start has the same messages."""
    options = ("--data-dir", str(tmp_path / "data"), "--config", str(config))
    bridge = Bridge(options, amqp_url="")
    try:
        for number, end in enumerate((bridge.kill, bridge.stop, bridge.stop)):
            bridge.start()
            with client_of(bridge) as client:
                send(client, "orders", f"m{number}")
            begin = time.monotonic()
            end()
            assert time.monotonic() - begin < ENDS_S
            eventually(lambda: not processes_of(tmp_path / "data"))
        bridge.start()
        with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in take(receiver, 3)] == ["m0", "m1", "m2"]
    finally:
        bridge.stop()
    eventually(lambda: not processes_of(tmp_path / "data"))


def processes_of(folder: Path) -> list[int]:
    """The processes whose environment names the folder (RabbitMQ's do)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def ready(bridge: Bridge) -> tuple[int, list[str]]:
    """The status of /health/ready, and its reasons."""
    try:
        with urllib.request.urlopen(bridge.admin_url + "/health/ready", timeout=120) as answer:
            return answer.status, json.load(answer)["reasons"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["reasons"]


def tell_of_a_change(connection: pika.BlockingConnection) -> None:
    """Have every bridge look at definitions and policies now, not within 15 s."""
    connection.channel().basic_publish("$sb/events", "", b"")


def test_readiness_names_a_policy_of_somebody_else(
    start_bridge: StartBridge,
    broker: Broker,
    vhost: str,
    pika_connection: pika.BlockingConnection,
) -> None:
    """A policy that wins over the bridge's turns it red with a sentence; without it it is green."""
    bridge = start_bridge()
    assert ready(bridge) == (200, [])
    policy = f"/api/policies/{vhost}/theirs"
    definition = {"message-ttl": 60_000}
    broker.management(
        "PUT",
        policy,
        {"pattern": ".*", "definition": definition, "priority": 999, "apply-to": "queues"},
    )
    tell_of_a_change(pika_connection)
    eventually(lambda: ready(bridge)[0] == 503)
    assert any("theirs" in reason for reason in ready(bridge)[1])
    broker.management("DELETE", policy)
    tell_of_a_change(pika_connection)
    eventually(lambda: ready(bridge) == (200, []))


@pytest.mark.long
def test_readiness_over_a_restart_of_rabbitmq(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """While RabbitMQ is away it is red and alive; when it is back it is green by itself."""
    own = start_broker()
    assert own.node is not None
    with own.fresh_vhost() as vhost:
        bridge = start_bridge(on=own, vhost=vhost)
        with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
            send(client, "orders", "before")
            take(receiver)
        own.node.kill()
        eventually(lambda: ready(bridge)[0] == 503)
        assert ready(bridge)[1]
        assert json.loads(bridge.get("/health/live"))["status"] == "live"
        own.node.start()
        eventually(lambda: ready(bridge)[0] == 200, within_s=120)
        with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
            send(client, "orders", "after")
            assert [str(message) for message in take(receiver)] == ["after"]
        bridge.stop()


def test_health_answers_as_the_emulator(start_bridge: StartBridge) -> None:
    """The words are those of Azure's emulator, which scripts look for."""
    bridge = start_bridge()

    expected = {"status": "healthy", "message": "Service is healthy."}
    assert json.loads(bridge.get("/health")) == expected


METRICS = {
    f"busbridge_{name}"
    for name in (
        *("connections", "locks", "kept_messages", "sequencer_active", "inbox_backlog"),
        *("sequencer_in_flight", "scheduled_messages", "bucket_queues", "arrivals"),
        *("journal_entries", "activated", "sequencer_elections", "sent", "scheduled", "cancelled"),
        *("delivered", "received_and_deleted", "completed", "abandoned", "dead_lettered"),
        *("deferred", "released", "renewed", "locks_expired", "expired", "second_copies"),
        *("sent_back", "activation_lateness_seconds", "loop_stall_seconds"),
        *("loop_stall_longest_seconds", "connections_unauthenticated", "connections_refused"),
        *("connections_ended", "unconfirmed_bytes", "unfinished_bytes", "transacted_bytes"),
        "commits_unanswered",
    )
}
"""What operators' dashboards ask for; the sample of a counter has `_total` behind it."""


@pytest.mark.parametrize("host", ["", "0.0.0.0", "127.0.0.1"])
def test_the_image_asks_for_its_health_at_the_port_that_is_set(
    start_bridge: StartBridge, host: str
) -> None:
    """Its script says 0 where a bridge answers with 200, and 1 where it does not, or nobody is."""
    bridge = start_bridge()
    script = str(Path(__file__).parents[2] / "docker" / "health")

    def asked(what: str) -> int:
        port = str(urllib.parse.urlsplit(bridge.admin_url).port)
        environment = {**os.environ, "BUSBRIDGE_ADMIN_PORT": port, "BUSBRIDGE_HOST": host}
        return subprocess.run([script, what], env=environment, check=False, timeout=120).returncode

    assert [asked(what) for what in ("live", "ready", "nothing")] == [0, 0, 1]
    bridge.kill()
    assert asked("live") == 1


def test_metrics_are_prometheus_text(start_bridge: StartBridge) -> None:
    """Prometheus's own parser reads them, and each that dashboards ask for is there."""
    bridge = start_bridge()
    with client_of(bridge) as client:
        send(client, "orders", "one", "two")
        eventually(lambda: 'busbridge_arrivals_total{entity="orders"} 2' in bridge.get("/metrics"))
    families = {each.name: each for each in text_string_to_metric_families(bridge.get("/metrics"))}

    assert families.keys() >= METRICS
    assert all(each.documentation for each in families.values())
    silent = families.pop("busbridge_queue_silent_since_seconds")
    assert not silent.samples, "every queue answers"
    hidden = families.pop("busbridge_peek_hidden_messages")
    assert not hidden.samples, "nobody has peeked"
    assert all(each.samples for each in families.values())
    lateness = families["busbridge_activation_lateness_seconds"]
    assert lateness.type == "histogram"
    assert {each.labels.get("le") for each in lateness.samples} >= {"0.001", "10.0", "+Inf"}


def test_what_is_not_there_is_no_metric(start_bridge: StartBridge) -> None:
    """Names that strangers make up are no labels, however many: clients get an error for each."""
    bridge = start_bridge()
    with ServiceBusClient.from_connection_string(bridge.connection_string, retry_total=0) as client:
        for number in range(2):
            with pytest.raises(ServiceBusError, match=f"made-up-{number}"):
                send(client, f"made-up-{number}", "x")

    assert "made-up" not in bridge.get("/metrics")


def test_no_key_in_the_logs(
    start_bridge: StartBridge, rules: Path, broker: Broker, vhost: str
) -> None:
    """At the most talkative level, with right and wrong keys, no key and no token is written."""
    bridge = start_bridge("--auth", str(rules), "--log-level", "debug")
    right, wrong = (
        connection_string(bridge.port, "owner", key)
        for key in ("first-key-of-mine", "wrong-key-of-mine")
    )
    with ServiceBusClient.from_connection_string(right, retry_total=0) as client:
        send(client, "orders", "x")
    with (
        pytest.raises(ServiceBusError),
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as client,
    ):
        send(client, "orders", "x")
    bridge.stop()

    text = "\n".join(bridge.lines)
    assert "of-mine" not in text
    assert "SharedAccessSignature" not in text
    assert "guest:guest" not in text


def test_the_log_tells_a_wrong_key_from_a_wrong_key_name(start_bridge: StartBridge) -> None:
    """With the entity, by AMQP and by HTTP; the client gets one answer for both."""
    bridge = start_bridge()
    known = "RootManageSharedAccessKey"
    for name, key in ((known, "wrong-key"), ("no-such-name", "SAS_KEY_VALUE")):
        text = connection_string(bridge.port, name, key)
        with (
            pytest.raises(ServiceBusError),
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        ):
            send(client, "orders", "x")
        asked = urllib.request.Request(f"{bridge.admin_url}/orders?api-version=2021-05")
        resource = urllib.parse.quote_plus(f"{bridge.admin_url}/orders")
        until_s = int(time.time()) + 600
        signature = urllib.parse.quote_plus(sign(resource, key, until_s))
        asked.add_header(
            "Authorization",
            f"SharedAccessSignature sr={resource}&sig={signature}&se={until_s}&skn={name}",
        )
        with pytest.raises(urllib.error.HTTPError, match="401"):
            http_answer(asked)

    eventually(lambda: len(refused(bridge)) == 4)
    places = f"sb://localhost:{bridge.port}/orders", f"{bridge.admin_url[7:]}/orders"
    for line, place in zip(refused(bridge)[:2], places, strict=True):
        assert place in line
        assert f"the key is none of the rule '{known}'" in line
    for line, place in zip(refused(bridge)[2:], places, strict=True):
        assert place in line
        assert "no rule has the name 'no-such-name'" in line


def refused(bridge: Bridge) -> list[str]:
    """The lines about refused tokens."""
    return [line for line in bridge.lines if " token.refused " in line]


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_client_of_rabbitmq_is_told_its_port(
    start_bridge: StartBridge, broker: Broker, is_tls: bool
) -> None:
    """One that came to the bridge's port by mistake; the log says so as well."""
    bridge = start_bridge()
    port = urllib.parse.urlsplit(broker.url).port
    tls = ssl.create_default_context(cafile=str(bridge.ca)) if is_tls else None
    address = pika.ConnectionParameters(
        "localhost",
        bridge.port,
        ssl_options=pika.SSLOptions(tls, "localhost") if tls is not None else None,
        connection_attempts=1,
    )
    with pytest.raises(pika.exceptions.AMQPError) as caught:
        pika.BlockingConnection(address)
    told = f"RabbitMQ's own port is {port}."
    assert f"own port is {port}." in repr(caught.value)
    eventually(lambda: any(told in line for line in bridge.lines))


def serve_in(folder: Path) -> subprocess.Popen[bytes]:
    """Begin to start a bridge with a private RabbitMQ in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "bridge.cli.main", "serve", "--data-dir", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_while_it_starts(tmp_path: Path, number: signal.Signals) -> None:
    """The end of the bridge while its private RabbitMQ starts ends both."""
    folder = tmp_path / "data"
    process = serve_in(folder)
    eventually(lambda: bool(processes_of(folder)))
    process.send_signal(number)
    process.wait(120)
    eventually(lambda: not processes_of(folder))


def catches_sigterm(pid: int) -> bool:
    """Whether a process is Erlang's VM, and catches SIGTERM: it does from its first moment on."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return b"beam.smp" in command and bool(caught >> (signal.SIGTERM - 1) & 1)


def test_an_end_while_erlang_boots(tmp_path: Path) -> None:
    """Erlang catches the signal of the bridge's end, and drops it until its kernel runs."""
    folder = tmp_path / "data"
    process = serve_in(folder)
    eventually(lambda: any(map(catches_sigterm, processes_of(folder))))
    process.kill()
    process.wait(120)
    eventually(lambda: not processes_of(folder))
