"""What the container image and the compose file hold."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_every_package_of_the_image_is_pinned() -> None:
    """What pyproject.toml asks for at run time has one version in the image, and a fitting one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "docker" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for text in (*project["dependencies"], *project["optional-dependencies"]["fast"]):
        wanted = Requirement(text)

        assert wanted.specifier.contains(pins[wanted.name]), text


def test_one_rabbitmq_image() -> None:
    """The compose file runs the RabbitMQ that `make run` takes from Docker."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    image = (ROOT / "docker" / "rabbitmq-image").read_text().strip()

    assert compose["services"]["rabbitmq"]["image"] == image
