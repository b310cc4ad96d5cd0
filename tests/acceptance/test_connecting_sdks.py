"""Java's, Go's and .NET's snippets of docs/connecting.md, with what `busbridge trust` prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.connecting import commands_to_trust, program, run, variables_to_trust
from tests.acceptance.driver import HERE, build, dotnet_built, tool
from tests.fixtures.bridge import Bridge

ENTITIES = {"orders": {}}


@pytest.fixture(scope="module")
def java_classes() -> str:
    """The packages of the Java SDK."""
    folder = HERE / "java"
    build(folder, tool("mvn", "Maven and JDK 17 are needed"), "-q", "-B", "process-classes")
    return f"{folder / 'target' / 'lib'}/*"


def java_trusts(bridge: Bridge, folder: Path) -> dict[str, str]:
    """Make a store in a folder as `busbridge trust` says; return the variables that name it."""
    assert bridge.ca is not None
    store, own_store = str(bridge.ca.with_name("truststore")), str(folder / "store")
    *making, _ = commands_to_trust(bridge, "Java")
    for each in making:
        subprocess.run(each.replace(store, own_store), shell=True, check=True)
    told = variables_to_trust(bridge, "Java")
    return {name: text.replace(store, own_store) for name, text in told.items()}


AUTHORITIES = """\
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

public class Authorities {
    public static void main(String[] arguments) throws Exception {
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init((java.security.KeyStore) null);
        for (var each : ((X509TrustManager) factory.getTrustManagers()[0]).getAcceptedIssuers()) {
            System.out.println(each.getSubjectX500Principal() + " " + each.getSerialNumber());
        }
    }
}
"""


def test_java_still_trusts_the_public_authorities(bridge: Bridge, tmp_path: Path) -> None:
    """The other HTTPS of that JVM goes on; the commands may be given again (a new `ca.pem`)."""
    source = tmp_path / "Authorities.java"
    source.write_text(AUTHORITIES)
    java = tool("java", "JDK 17 is needed")
    public = set(run([java, str(source)], tmp_path).splitlines())
    java_trusts(bridge, tmp_path)
    trusted = java_trusts(bridge, tmp_path)
    now = set(run([java, str(source)], tmp_path, **trusted).splitlines())

    assert public
    assert public < now
    assert len(now - public) == 1


@pytest.mark.parametrize("way", ["plain", "tls", "websockets", "administration"])
def test_dotnet(bridge: Bridge, tmp_path: Path, way: str) -> None:
    """The snippet of .NET, as it stands."""
    folder = tmp_path / "connecting"
    folder.mkdir()
    shutil.copy(HERE / "dotnet/accounting/accounting.csproj", folder / "connecting.csproj")
    (folder / "Connecting.cs").write_text(program(bridge, "csharp", way))
    command = dotnet_built(folder)
    trusted = {} if way == "plain" else variables_to_trust(bridge, ".NET")
    printed = run(command, tmp_path, **trusted)

    assert printed.startswith("hello")


@pytest.mark.parametrize("way", ["plain", "tls", "websockets", "administration"])
def test_java(bridge: Bridge, java_classes: str, tmp_path: Path, way: str) -> None:
    """The snippet of Java, as it stands, with a store that `keytool` makes as it is told."""
    trusted = {} if way == "plain" else java_trusts(bridge, tmp_path)
    source = tmp_path / "Connecting.java"
    source.write_text(program(bridge, "java", way))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = tool("java", "JDK 17 is needed")
    printed = run([java, quiet, "-cp", java_classes, str(source)], tmp_path, **trusted)

    assert printed.startswith("hello")


@pytest.mark.parametrize("way", ["plain", "tls", "administration"])
def test_go(bridge: Bridge, tmp_path: Path, way: str) -> None:
    """The snippet of Go, as it stands."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    (tmp_path / "main.go").write_text(program(bridge, "go", way))
    build(tmp_path, tool("go", "Go 1.23 or newer is needed"), "build", "-o", "connecting", ".")
    trusted = {} if way == "plain" else variables_to_trust(bridge, "Go")
    printed = run([str(tmp_path / "connecting")], tmp_path, **trusted)

    assert printed.startswith("hello")
