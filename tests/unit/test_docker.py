"""What the container image and the compose file hold."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from bridge.broker.node.folder import CONFIGURATION
from bridge.cli.settings import OPTIONS
from bridge.model.tiers import PREMIUM_MESSAGE_SIZE_KB
from bridge.testing import container
from bridge.topology.findings import needed_bytes

ROOT = Path(__file__).parents[2]


def test_every_package_of_the_image_is_pinned() -> None:
    """What pyproject.toml asks for at run time has one version in the image, and a fitting one."""
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
