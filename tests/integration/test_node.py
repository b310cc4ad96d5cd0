"""The bridge's private RabbitMQ: kept data, clean ends, clusters, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.errors import BrokerError, ConnectionLost, LoginRefused, NodeFailed
from bridge.broker.management.api import Management
from bridge.broker.message_size import rabbitmq_bytes_max
from bridge.broker.node.folder import CONFIGURATION
from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from bridge.wire.basic import Properties
from tests.brokers.certificates import make_certificates
from tests.brokers.clustering import ctl, join, membership
from tests.fixtures.waiting import until
from tests.integration.inbox import QUORUM, WITHIN_S, Inbox

pytestmark = pytest.mark.long

PLAIN = Properties(delivery_mode=2).encode()
ROOT = Path(__file__).parents[2]

MakeNode = Callable[..., Node]


@pytest.fixture
def installation(request: pytest.FixtureRequest) -> Installation:
    """The RabbitMQ that the run is about."""
    tree = request.config.getoption("--rabbitmq")
    found = Installation.below(Path(tree)) if tree else Installation.find()
    assert found is not None, "RabbitMQ is not installed here (make setup)"
    return found


@pytest_asyncio.fixture
async def make_node(installation: Installation, tmp_path: Path) -> AsyncIterator[MakeNode]:
    """Make nodes that are gone at the end."""
    made: list[Node] = []

    def make(folder: str = "node", **options: object) -> Node:
        made.append(Node(tmp_path / folder, installation, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for node in made:
        await node.stop(timeout_s=0)


def pids_in(folder: Path) -> list[int]:
    """Return the processes that were started for a node's folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


async def nothing_left_in(folder: Path) -> None:
    """Wait for the end of all of them: what the node has started itself ends after it."""

    async def is_nothing_left() -> bool:
        return pids_in(folder) == []

    await until(is_nothing_left)


async def test_data_is_kept_between_runs(make_node: MakeNode) -> None:
    """A message and a global parameter are there after a stop and a start, on the same ports."""
    node = make_node()
    await node.start()
    connection = await Connection.open(node.endpoint, name="test")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    await channel.publisher.publish_confirmed("", "q", PLAIN, b"kept")
    await connection.close()
    async with Management(node.endpoint, node.management_url) as management:
        await management.put_global_parameter("kept", [1])
    await node.stop()
    await nothing_left_in(node.folder)
    again = make_node()
    await again.start()
    assert (again.endpoint, again.management_url) == (node.endpoint, node.management_url)
    connection = await Connection.open(again.endpoint, name="test")
    inbox = Inbox()
    await (await connection.channel()).consumers.consume("q", inbox)
    await inbox.until(1)
    await connection.close()
    async with Management(again.endpoint, again.management_url) as management:
        assert await management.global_parameter("kept") == [1]

    assert inbox.bodies == [b"kept"]


def listening() -> dict[str, ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses that are listened on (state 0A), by the inode of their sockets."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                # Words of 32 bits in the machine's byte order, which is little-endian here.
                raw = bytes.fromhex(local.partition(":")[0])
                words = [raw[i : i + 4][::-1] for i in range(0, len(raw), 4)]
                found[inode] = ipaddress.ip_address(b"".join(words))
    return found


def socket_inodes(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    links = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.add(str(each.readlink()))
    return {link[8:-1] for link in links if link.startswith("socket:[")}


async def test_it_listens_on_loopback_only(make_node: MakeNode) -> None:
    """No port of the node, of its distribution or of its epmd is open to other machines."""
    node = make_node()
    await node.start()
    ours = {inode for pid in pids_in(node.folder) for inode in socket_inodes(pid)}
    places = [place for inode, place in listening().items() if inode in ours]

    assert len(places) >= 4
    assert [each for each in places if not each.is_loopback] == []


async def test_a_folder_has_one_node(make_node: MakeNode) -> None:
    """A second start in the same folder is refused, and does not hurt the first."""
    node = make_node()
    await node.start()
    with pytest.raises(NodeFailed, match="another process"):
        await make_node().start()

    await (await Connection.open(node.endpoint, name="test")).close()


async def test_what_is_wrong_is_told(make_node: MakeNode) -> None:
    """A node that does not start fails with the words of its log, and leaves nothing."""
    node = make_node(configuration={"no.such.key": "1"})
    with pytest.raises(NodeFailed, match=r"no\.such\.key"):
        await node.start()

    await nothing_left_in(node.folder)


async def test_it_tells_when_it_ends_by_itself(make_node: MakeNode) -> None:
    """`has_ended` is set when the process is gone."""
    node = make_node()
    await node.start()
    assert not node.has_ended.is_set()
    node.signal(signal.SIGKILL)
    await asyncio.wait_for(node.has_ended.wait(), WITHIN_S)

    assert not node.is_running


STARTER = """
import asyncio, os, signal, sys
from pathlib import Path
from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node

async def main():
    installation = Installation(scripts=Path(sys.argv[2]), path=sys.argv[3])
    node = Node(Path(sys.argv[1]), installation)
    await node.start()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_it_ends_with_the_bridge(
    make_node: MakeNode, installation: Installation, tmp_path: Path
) -> None:
    """After a kill of the bridge nothing stays behind, and the next one starts over its data."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, str(tmp_path / "node"), str(installation.scripts),
        installation.path, cwd=ROOT,
    )  # fmt: skip
    assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
    node = make_node()
    await node.start()
    await node.stop()

    await nothing_left_in(node.folder)


@pytest.mark.soak
async def test_nodes_form_a_cluster(make_node: MakeNode) -> None:
    """Three nodes share a quorum queue; with one of them killed, nothing confirmed is lost."""
    first = make_node("a", name="a")
    await first.start()
    shared = membership(first)
    others = [make_node(name, name=name, **shared) for name in ("b", "c")]
    for node in others:
        await node.start()
        await join(node, first)
    hosts = tuple(node.endpoint.hosts[0] for node in (*others, first))
    endpoint = Endpoint(hosts=hosts)
    connection = await Connection.open(endpoint, name="test")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        await channel.publisher.publish_confirmed("", "q", PLAIN, body)
    await others[0].kill()
    await asyncio.wait_for(connection.closed.wait(), WITHIN_S)
    connection = await Connection.open(endpoint, name="test")
    inbox = Inbox()
    await (await connection.channel()).consumers.consume("q", inbox)
    await inbox.until(len(bodies))
    await connection.close()

    assert inbox.bodies == bodies


async def test_tls_with_certificates(make_node: MakeNode, tmp_path: Path) -> None:
    """The server's certificate is checked; the client's is a login when there is no password."""
    await asyncio.to_thread(make_certificates, tmp_path)
    port = 0
    with contextlib.closing(await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)) as free:
        port = free.sockets[0].getsockname()[1]
    node = make_node(
        plugins=("rabbitmq_management", "rabbitmq_auth_mechanism_ssl"),
        configuration={
            "listeners.ssl.1": f"127.0.0.1:{port}",
            "ssl_options.cacertfile": str(tmp_path / "ca.pem"),
            "ssl_options.certfile": str(tmp_path / "server.pem"),
            "ssl_options.keyfile": str(tmp_path / "server.key"),
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
            "ssl_cert_login_from": "common_name",
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "EXTERNAL",
        },
    )
    await node.start()
    await ctl(node, "add_user", "client", "unused")
    await ctl(node, "set_permissions", "client", ".*", ".*", ".*")
    files = {"ca": str(tmp_path / "ca.pem")}
    certificate = {"cert": str(tmp_path / "client.pem"), "key": str(tmp_path / "client.key")}
    for endpoint in (
        parse_url(f"amqps://guest:guest@127.0.0.1:{port}", **files),
        parse_url(f"amqps://127.0.0.1:{port}", **files, **certificate),
    ):
        connection = await Connection.open(endpoint, name="test")
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        queue = (await channel.declarations.declare_queue(exclusive=True)).name
        await channel.publisher.publish_confirmed("", queue, PLAIN, bytes(1 << 20))
        delivery = await channel.consumers.get(queue)
        assert delivery is not None
        assert len(delivery.body) == 1 << 20
        await connection.close()
        assert await rabbitmq_bytes_max(endpoint) == int(CONFIGURATION["max_message_size"])
    without_ca = parse_url(f"amqps://127.0.0.1:{port}")
    with pytest.raises(ConnectionLost, match="TLS"):
        await Connection.open(without_ca, name="no CA")
    stranger = parse_url(f"amqps://a:b@127.0.0.1:{port}", **files)
    with pytest.raises(BrokerError) as refused:
        await Connection.open(stranger, name="no user")
    assert isinstance(refused.value, LoginRefused)
    assert await rabbitmq_bytes_max(without_ca) is None
    assert await rabbitmq_bytes_max(stranger) is None


async def test_the_smallest_message_limit_of_all_nodes(make_node: MakeNode) -> None:
    """Each node has its own max_message_size; one that is down is left out."""
    nodes = [
        make_node(name, name=name, configuration={"max_message_size": str(size_bytes)})
        for name, size_bytes in (("one", 3_000_000), ("two", 2_000_000))
    ]
    for node in nodes:
        await node.start()
    hosts = tuple(host for node in nodes for host in node.endpoint.hosts)
    assert await rabbitmq_bytes_max(Endpoint(hosts=hosts)) == 2_000_000
    await nodes[1].stop(timeout_s=0)
    assert await rabbitmq_bytes_max(Endpoint(hosts=hosts)) == 3_000_000
