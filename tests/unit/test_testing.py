"""The pure parts of the help for applications' tests: nothing here starts anything."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from bridge.broker.connection.endpoint import parse_url
from bridge.broker.node.installation import Installation
from bridge.cli.options import OPTIONS
from bridge.model.access_policy import read_policy
from bridge.testing import container, plugin
from bridge.testing.rabbitmq import NoRabbitMQ, rabbitmq_flags

ROOT = Path(__file__).parents[2]


def test_pytest_finds_the_plugin() -> None:
    """By the wheel's entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = project["entry-points"]["pytest11"]["busbridge"]
    assert importlib.import_module(name) is plugin


def test_a_container_s_bridge_takes_its_rules() -> None:
    """One rule with all rights, as the bridge reads it, and in the connection string."""
    rules = read_policy(container.rules_document("a+key=")).rules
    assert rules.has_key("a+key=")
    (rule,) = json.loads(container.rules_document("a+key="))["rules"]
    text = container.connection_string("localhost", 1234, "a+key=")
    assert f"SharedAccessKeyName={rule['name']};SharedAccessKey=a+key=;" in text
    assert text.startswith("Endpoint=sb://localhost:1234;")


def test_a_container_s_variables_are_the_bridges() -> None:
    """Each is an option of the bridge, and one of those that the compose file sets."""
    given = container.bridge_environment("rabbitmq")
    assert set(given) <= {each.variable for each in OPTIONS}
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    assert set(given) <= set(compose["services"]["bridge"]["environment"])
    assert parse_url(given["BUSBRIDGE_RABBITMQ_URL"]).hosts == (("rabbitmq", 5672),)


def test_a_given_rabbitmq_is_named(tmp_path: Path) -> None:
    """With its management API, where that is given."""
    url = "amqp://localhost/"
    with rabbitmq_flags(url, None, tmp_path) as flags:
        assert flags == ("--rabbitmq-url", url)
    with rabbitmq_flags(url, "http://localhost:1", tmp_path) as flags:
        assert flags == ("--rabbitmq-url", url, "--management-url", "http://localhost:1")


def test_without_any_rabbitmq_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No installation, and no Docker that answers."""
    monkeypatch.setattr(Installation, "find", classmethod(lambda cls: None))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with (
        pytest.raises(NoRabbitMQ, match=r"install RabbitMQ 4\.0 or newer"),
        rabbitmq_flags(None, None, tmp_path),
    ):
        pass
