"""What the container image and the compose file hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from packaging.requirements import Requirement

from bridge.broker.node.folder import CONFIGURATION
from bridge.cli.main import parser_of
from bridge.cli.options import ADMIN_PORT_DEFAULT, OPTIONS
from bridge.model.tiers import PREMIUM_MESSAGE_SIZE_KB
from bridge.relay.file_secrets import FileSecrets
from bridge.relay.plan.file import read_file
from bridge.relay.running.route_run import STOP_S
from bridge.testing import container
from bridge.topology.findings import needed_bytes

ROOT = Path(__file__).parents[2]
LOGIN = "SharedAccessKeyName=all;SharedAccessKey=c2VjcmV0"


def test_every_package_of_the_image_is_pinned() -> None:
    """Each requirement of pyproject.toml has one version in the image, and a fitting one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "docker" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["serve"], *extras["fast"]):
        wanted = Requirement(text)

        assert wanted.specifier.contains(pins[wanted.name]), text


def instructions() -> list[str]:
    """Return the Dockerfile's instructions, each on one line."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "docker" / "Dockerfile").read_text())
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_layers_stand_in_the_order_of_how_seldom_they_change() -> None:
    """A change of the code makes one layer anew; packages and compiler are not fetched again."""
    lines = instructions()
    stages = [index for index, line in enumerate(lines) if line.startswith("FROM ")]
    packages, build, image = (
        lines[begin:end] for begin, end in zip(stages, [*stages[1:], None], strict=True)
    )

    assert not any("bridge bridge" in line for line in packages)
    assert "apt-get install" in build[1]
    assert build[-2] == "COPY bridge bridge"
    made = [line for line in image if line.startswith(("RUN", "COPY"))]
    assert ["useradd" in made[0], "from=packages" in made[1], "from=build" in made[-1]] == [
        True
    ] * 3


def test_every_stage_has_the_same_base_by_its_digest() -> None:
    """Builds of today and of next year begin alike; what is built for one Python runs on it."""
    lines = instructions()
    assert re.fullmatch(r"ARG PYTHON=python:3\.13-slim-\w+@sha256:[0-9a-f]{64}", lines[0])
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert bases == {"${PYTHON}"}


def test_the_health_check_starts_no_python() -> None:
    """The image asks whether the bridge lives; compose waits until it is ready."""
    (check,) = (line for line in instructions() if line.startswith("HEALTHCHECK"))
    bridge = compose()["services"]["bridge"]

    assert check.endswith('CMD ["/opt/busbridge/health", "live"]')
    assert "COPY docker/health /opt/busbridge/health" in instructions()
    assert bridge["healthcheck"]["test"] == ["CMD", "/opt/busbridge/health", "ready"]
    assert (ROOT / "docker" / "health").read_text().startswith("#!/bin/bash\n")
    assert os.access(ROOT / "docker" / "health", os.X_OK)


def compose() -> dict[str, Any]:
    """Return the compose file."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    return found


def test_the_relay_of_compose() -> None:
    """Its options and its file are the command's; it is limited, and has the time that it needs."""
    found = yaml.safe_load((ROOT / "docker" / "relay.yaml").read_text())
    relay = found["services"]["relay"]
    command, verb, *options = relay["entrypoint"]
    arguments = parser_of().parse_args([verb, *options])
    (config,) = relay["configs"]

    assert command == "busbridge"
    assert str(arguments.file) == config["target"]
    assert config["source"] in found["configs"]
    assert arguments.admin_port == ADMIN_PORT_DEFAULT
    assert arguments.host == "0.0.0.0"
    (port,) = relay["ports"]
    assert port.endswith(f":{ADMIN_PORT_DEFAULT}")
    assert "BUSBRIDGE_ADMIN_PORT=5300" in (ROOT / "docker" / "Dockerfile").read_text()
    assert relay["healthcheck"]["test"] == ["CMD", "/opt/busbridge/health", "ready"]
    assert set(relay["depends_on"]) <= set(compose()["services"])
    assert {"mem_limit", "cpus", "pids_limit"} <= set(relay)
    assert float(relay["stop_grace_period"].removesuffix("s")) > STOP_S


def test_the_relay_of_compose_has_the_sides_of_the_documentation(tmp_path: Path) -> None:
    """The variables are set that docs/hybrid.md names, and its bridge is the service."""
    relay = yaml.safe_load((ROOT / "docker" / "relay.yaml").read_text())["services"]["relay"]
    page = (ROOT / "docs" / "hybrid.md").read_text().split("## Moving an application")[1]
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    given = {"BUSBRIDGE_KEY": "a2V5", "AZURE_SERVICE_BUS": f"Endpoint=sb://shop.example/;{LOGIN}"}
    environment = {
        name: re.sub(r"\$\{(\w+)[^}]*\}", lambda it: given[it[1]], text)
        for name, text in relay["environment"].items()
    }

    file = read_file("".join(blocks[:2]), FileSecrets(tmp_path, environment), uuid4).whole()

    assert {side.host for side in file.sides.values()} == {"shop.example", "bridge"}
    assert "bridge" in compose()["services"]


def unit_of_systemd() -> str:
    """Return the relay's unit."""
    return (ROOT / "docker" / "busbridge-relay@.service").read_text()


def test_the_relay_of_systemd() -> None:
    """Its command lines are the command's, and it has the time that it needs to stop."""
    lines = unit_of_systemd().splitlines()
    fields = dict(line.split("=", 1) for line in lines if line[:1].isalpha())
    for name in ("ExecStartPre", "ExecStart"):
        _, *words = fields[name].split()
        assert str(parser_of().parse_args(words).file) == "/etc/busbridge/%i.toml"

    assert float(fields["TimeoutStopSec"]) > STOP_S
    assert fields["KillSignal"] == "SIGTERM"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_has_no_complaint_of_the_unit(tmp_path: Path) -> None:
    """With a program that is there."""
    unit = tmp_path / "busbridge-relay@orders.service"
    unit.write_text(unit_of_systemd().replace("/opt/busbridge/bin/busbridge", "/bin/true"))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr


def test_the_virtual_host_of_compose_is_the_bridges_own() -> None:
    """RabbitMQ makes it, and the bridge's URL names it."""
    services = compose()["services"]
    vhost = services["rabbitmq"]["environment"]["RABBITMQ_DEFAULT_VHOST"]

    assert services["bridge"]["environment"]["BUSBRIDGE_RABBITMQ_URL"].endswith(f":5672/{vhost}")
    assert vhost != "/"


def test_no_service_of_compose_takes_the_whole_machine() -> None:
    """Memory, processors and processes are limited; RabbitMQ's alarm comes before its limit."""
    found = compose()
    for service in found["services"].values():
        assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert found["services"]["rabbitmq"]["mem_limit"] == "2g"
    assert rabbitmq_settings()["vm_memory_high_watermark.absolute"] == "1200MiB"


def rabbitmq_settings() -> dict[str, str]:
    """Return what the compose file writes into RabbitMQ's configuration."""
    found = compose()
    (source,) = found["services"]["rabbitmq"]["configs"]
    lines = found["configs"][source["source"]]["content"].splitlines()
    assert source["target"].startswith("/etc/rabbitmq/conf.d/")
    return dict(line.split(" = ") for line in lines if not line.startswith("#"))


def test_rabbitmq_in_compose_takes_the_messages_of_every_tier() -> None:
    """As much as a private RabbitMQ does: Premium's largest message, and the bridge's own bytes."""
    size = rabbitmq_settings()["max_message_size"]

    assert size == CONFIGURATION["max_message_size"]
    assert int(size) >= needed_bytes(PREMIUM_MESSAGE_SIZE_KB[-1])


def test_one_rabbitmq_image() -> None:
    """The compose file and tests run the RabbitMQ that `make run` takes from Docker."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    image = (ROOT / "docker" / "rabbitmq-image").read_text().strip()

    assert compose["services"]["rabbitmq"]["image"] == image == container.RABBITMQ_IMAGE


def test_the_certificate_of_compose_outlasts_its_container() -> None:
    """It is where the image keeps its data, on a volume; every variable is an option's."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    bridge = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]["bridge"]
    (data_dir,) = re.findall(r"BUSBRIDGE_DATA_DIR=(\S+)", dockerfile)
    variables = {*bridge["environment"], *re.findall(r"(BUSBRIDGE_\w+)=", dockerfile)}

    assert f"bridge:{data_dir}" in bridge["volumes"]
    assert "BUSBRIDGE_TLS_NAME" in variables
    assert variables <= {option.variable for option in OPTIONS}
