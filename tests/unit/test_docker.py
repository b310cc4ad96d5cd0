"""What the container image and the compose file hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from bridge.cli.settings import OPTIONS
from bridge.testing import container

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
