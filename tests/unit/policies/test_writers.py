"""What the writers write, read by what will read it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from bridge.topology.resources import Parameter, Policy, Topology
from policies.live import topology_of
from policies.writers import (
    WRITERS,
    KubernetesPlace,
    Wanted,
    bash,
    cmd,
    kubernetes,
    powershell,
    rabbitmqctl,
    terraform,
)
from policies.writers.definitions import Document
from policies.writers.hcl import quote as hcl_quote
from policies.writers.labels import label
from policies.writers.output import Written
from policies.writers.script import Command, Unquotable
from tests.fixtures.examples import examples
from tests.unit.policies.windows import Cmd, arguments
from tests.unit.policies.windows import powershell as run_powershell
from tests.unit.topology.entities import namespaces

AWKWARD = (
    *("orders", "a.b", r"^(?:a\.b|c)$", '{"message-ttl":60000}', "two words", "", '"', "\\"),
    *('a\\"b', "a\\", "$HOME `ls` $(ls)", "it's", "a b\\", "a&b|c<d>e", "(x)", "x=y", "''"),
    *("^", "^^", "*", "~", "-p", "--x=y", "semi;colon,comma", "#hash", "@at", "{}[]", '" "'),
)
BEYOND_ASCII = ("é 漢 😀", "\u2018typographic\u2019")
WORDS = st.sampled_from(AWKWARD) | st.text(st.characters(min_codepoint=32, max_codepoint=126))
WINDOWS_WORDS = WORDS.filter(
    lambda word: not re.search("[%!]", word) and not re.search(r'\\".*\s|\s.*\\"', word)
)
DOCUMENT: Document = {
    "policies": [
        {"text": text, "number": 5, "none": None, "yes": True}
        for text in (*AWKWARD, *BEYOND_ASCII, "tab\there", "100%", "!", "\n")
    ]
}


def wanted(namespace: model.Namespace, *, vhost: str = "/", version: str = "4.3") -> Wanted:
    """A namespace in the bridge's flavour."""
    target = Capabilities.of(version)
    topology = compiler.compile(namespace, target)
    parameters = definitions.parameters(namespace, vhost)
    return Wanted(topology=replace(topology, parameters=parameters), vhost=vhost, target=target)


@settings(max_examples=examples(60), deadline=None)
@given(namespaces())
def test_any_model_survives_a_definitions_file(namespace: model.Namespace) -> None:
    """Reading a written definitions JSON gives the same topology and the same namespace."""
    given_ = wanted(namespace, vhost="a/b c")
    read = topology_of(json.loads(WRITERS["definitions"](given_).text), "a/b c")
    assert replace(given_.topology, findings=()) == read
    base, *entities = [parameter.value for parameter in read.parameters]
    assert isinstance(base, dict)
    assert namespace == definitions.assemble(
        definitions.namespace_from_json(base),
        [definitions.from_json(form) for form in entities if isinstance(form, dict)],
    )


@settings(max_examples=examples(60), deadline=None)
@given(namespaces(), st.sampled_from(sorted(WRITERS)))
def test_the_same_input_gives_the_same_bytes(namespace: model.Namespace, to: str) -> None:
    """And no writer fails on any model."""
    first, second = (WRITERS[to](wanted(namespace)) for _ in range(2))
    assert first == second
    assert first.text.endswith("\n")
    assert isinstance(first, Written)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        WORDS
        | st.sampled_from((*BEYOND_ASCII, "\n"))
        | st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12),
        min_size=1,
        max_size=12,
    )
)
def test_bash_gives_every_word_unchanged(words: list[str]) -> None:
    """Run by bash itself: the program gets exactly these arguments, and the document."""
    commands = [
        Command(words=("python3", "-S", "-c", _READ, *words), document=DOCUMENT, takes_file=False),
        Command(words=("python3", "-S", "-c", _OPEN, *words), document=DOCUMENT),
    ]
    script = ["bash", "-c", bash.render(commands)]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(script, capture_output=True, check=True, env=environment)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[words, DOCUMENT]] * 2


_UNICODE = {**os.environ, "LC_ALL": "C.UTF-8"}
_READ = "import json,sys; print(json.dumps([sys.argv[1:], json.load(sys.stdin)]))"
_OPEN = "import json,sys; print(json.dumps([sys.argv[1:-1], json.load(open(sys.argv[-1]))]))"


def test_bash_stops_at_the_first_command_that_fails() -> None:
    """Unless it may fail."""
    commands = [
        Command(words=("false",), may_fail=True),
        Command(words=("echo", "one")),
        Command(words=("false",)),
        Command(words=("echo", "two")),
    ]
    done = subprocess.run(["bash", "-c", bash.render(commands)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"one\n")


@settings(deadline=None)
@given(st.lists(WINDOWS_WORDS, max_size=8))
def test_cmd_gives_every_word_unchanged(words: list[str]) -> None:
    """Read as cmd.exe reads a batch file that calls a batch file."""
    commands = [
        Command(words=("rabbitmqctl", *words), may_fail=True),
        Command(words=("rabbitmqctl", "import_definitions"), document=DOCUMENT),
    ]
    (first, _), (second, document) = Cmd().run(cmd.render(commands)).calls
    assert first == ["rabbitmqctl", *words]
    assert second == ["rabbitmqctl", "import_definitions"]
    assert document is not None
    assert json.loads(document) == DOCUMENT


@settings(deadline=None)
@given(st.lists(WINDOWS_WORDS, max_size=8))
def test_powershell_gives_every_word_unchanged(words: list[str]) -> None:
    """Read as PowerShell passes words to a batch file, and cmd.exe to a program."""
    commands = [
        Command(words=("rabbitmqctl", *words)),
        Command(words=("rabbitmqctl", "import_definitions"), document=DOCUMENT),
    ]
    (first, _), (second, document) = run_powershell(powershell.render(commands))
    assert first == ["rabbitmqctl", *words]
    assert second == ["rabbitmqctl", "import_definitions"]
    assert document is not None
    assert document.isascii()
    assert json.loads(document) == DOCUMENT


@pytest.mark.parametrize("quote", [cmd.quote, powershell.quote])
@pytest.mark.parametrize("word", ["100%", "%PATH%", "two\nlines", "bang!", *BEYOND_ASCII])
def test_what_cmd_would_change_is_refused(quote: object, word: str) -> None:
    """Rather no script than one that sets something else."""
    assert callable(quote)
    with pytest.raises(Unquotable):
        quote(word)


def test_what_versions_of_powershell_read_differently_is_refused() -> None:
    """From version 6 on, white space after a backslash and a quote counts as outside of quotes."""
    with pytest.raises(Unquotable):
        powershell.quote('a\\" b')


def test_the_seeds_example_is_written_as_people_write_it() -> None:
    """`set_policy` in the form of RabbitMQ's own documentation, for each shell."""
    policy = Policy(name="TTL", pattern=".*", definition={"message-ttl": 60_000}, priority=0)
    command = rabbitmqctl.set_policy(policy, "/")
    ending = "--priority 0 --apply-to queues"
    assert (
        f"rabbitmqctl --vhost / set_policy TTL '.*' '{{\"message-ttl\":60000}}' {ending}\n"
        in bash.render([command])
    )
    assert (
        f'call rabbitmqctl --vhost "/" set_policy TTL ".*" "{{""message-ttl"":60000}}" {ending}'
        in cmd.render([command]).replace("--vhost / ", '--vhost "/" ')
    )
    assert (
        f"""rabbitmqctl --vhost / set_policy TTL '".*"' '"{{""message-ttl"":60000}}"' {ending};"""
        in powershell.render([command])
    )


def test_arguments_are_split_as_c_programs_do() -> None:
    """The examples of Microsoft's documentation."""
    assert [
        arguments('"a b c" d e'),
        arguments('"ab\\"c" "\\\\" d'),
        arguments('a\\\\\\b d"e f"g h'),
        arguments('a\\\\\\"b c d'),
        arguments('a\\\\\\\\"b c" d e'),
        arguments('"a""b" c'),
    ] == [
        ["a b c", "d", "e"],
        ['ab"c', "\\", "d"],
        ["a\\\\\\b", "de fg", "h"],
        ['a\\"b', "c", "d"],
        ["a\\\\b c", "d", "e"],
        ['a"b', "c"],
    ]


NAMED = {"name": str, "vhost": str, "rabbitmqClusterReference": dict}
POLICY = {**NAMED, "pattern": str, "priority": int, "definition": dict}
SPECIFICATIONS: dict[str, dict[str, type | tuple[str, ...]]] = {
    "Vhost": {"name": str, "rabbitmqClusterReference": dict},
    "Policy": {
        **POLICY,
        "applyTo": ("all", "queues", "classic_queues", "quorum_queues", "exchanges"),
    },
    "OperatorPolicy": {
        **POLICY,
        "applyTo": ("queues", "classic_queues", "quorum_queues", "streams"),
    },
    "Exchange": {
        **NAMED,
        "type": ("direct", "fanout", "headers", "topic"),
        "durable": bool,
        "arguments": dict,
    },
    "Queue": {**NAMED, "type": str, "durable": bool, "arguments": dict},
    "Binding": {
        "vhost": str,
        "source": str,
        "destination": str,
        "destinationType": ("exchange", "queue"),
        "routingKey": str,
        "arguments": dict,
        "rabbitmqClusterReference": dict,
    },
}
"""What the operator's resource definitions say of the fields that we use; values are enumerations.

https://github.com/rabbitmq/messaging-topology-operator/tree/main/config/crd/bases
"""
REQUIRED = {"name", "pattern", "definition", "rabbitmqClusterReference"}


def assert_valid(kind: str, spec: dict[str, object]) -> None:
    """As Kubernetes does before the operator sees an object; unknown fields would be dropped."""
    fields = SPECIFICATIONS[kind]
    assert spec.keys() <= fields.keys()
    assert spec.keys() >= REQUIRED & fields.keys()
    for key, value in spec.items():
        allowed = fields[key]
        if isinstance(allowed, tuple):
            assert value in allowed
        else:
            assert type(value) is allowed


@settings(max_examples=40, deadline=None)
@given(namespaces())
def test_kubernetes_yaml_is_read_as_the_objects_it_was_written_from(
    namespace: model.Namespace,
) -> None:
    """By a YAML parser; every object has a name of its own that Kubernetes takes."""
    given_ = wanted(namespace, vhost="a b")
    place = KubernetesPlace(namespace="shop", cluster="rabbit", cluster_namespace="brokers")
    given_ = replace(given_, kubernetes=place)
    documents = list(yaml.load_all(kubernetes.write(given_).text, yaml.CSafeLoader))
    objects = kubernetes.objects(given_)
    assert len(documents) == len(objects)
    names = set()
    for document, (kind, _, spec) in zip(documents, objects, strict=True):
        assert document["apiVersion"] == "rabbitmq.com/v1beta1"
        assert document["kind"] == kind
        names.add((kind, document["metadata"]["name"]))
        assert document["metadata"]["namespace"] == "shop"
        assert document["metadata"]["name"].replace("-", "").isalnum()
        assert len(document["metadata"]["name"]) <= 63
        assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
        assert_valid(kind, document["spec"])
        assert document["spec"].pop("rabbitmqClusterReference") == {
            "name": "rabbit",
            "namespace": "brokers",
        }
        assert document["spec"] == {k: v for k, v in spec.items() if v not in ({}, "")}
    assert len(names) == len(documents)


@given(st.text(max_size=20))
def test_labels_tell_names_apart(name: str) -> None:
    """Letters and digits in, the same out; anything else gets a digest."""
    found = label(name, separator="-", length_max=20)
    assert len(found) <= 20
    assert found
    assert (found == name) == (re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) is not None)


def test_kubernetes_says_what_a_deletion_takes_with_it() -> None:
    """In the file, and to who asks for it; names of the cluster are options."""
    given_ = wanted(model.Namespace(queues=(model.Queue(name="orders"),)))
    written = kubernetes.write(given_)
    assert written.text.startswith("# Deleting one of these objects")
    assert "deletes the queue in RabbitMQ with its messages" in written.findings[-1].message
    assert "namespace:" not in written.text


TERRAFORM = model.Namespace(
    queues=(model.Queue(name="orders"), model.Queue(name="late", max_delivery_count=3)),
    authorization_rules=(
        model.AuthorizationRule(
            name="app", primary_key='K"ey\\+1=', rights=frozenset({model.Right.SEND})
        ),
    ),
)


def test_terraform_names_versions_keeps_queues_and_makes_them_after_their_policies() -> None:
    """A plan that would destroy a queue fails; no queue is ever there without its policy."""
    text = WRITERS["terraform"](wanted(TERRAFORM, vhost="shop")).text
    assert 'required_version = ">= 1.4"' in text
    assert 'version = "~> 1.8"' in text
    queues = [
        block for block in text.split("\n\n") if block.startswith('resource "rabbitmq_queue"')
    ]
    assert len(queues) > 6
    assert all("prevent_destroy = true" in block for block in queues)
    (late,) = [block for block in queues if 'name  = "late"' in block]
    assert "depends_on = [rabbitmq_policy._busbridge_limit_2" in late
    (vhost,) = [block for block in text.split("\n\n") if '"rabbitmq_vhost"' in block]
    assert "prevent_destroy = true" in vhost


def test_terraforms_requests_show_no_secret_in_a_list_of_processes(tmp_path: Path) -> None:
    """Neither login nor access keys are an argument of a program, and both arrive unchanged."""
    seen = tmp_path / "seen"
    (tmp_path / "curl").write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} >> {seen}\n')
    (tmp_path / "curl").chmod(0o755)
    command = terraform.REQUEST
    body = json.dumps({"value": {"primaryKey": 'K"ey\\+1=%s'}})
    subprocess.run(
        ["/bin/sh", "-c", command],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "LOGIN": 'me:pass"w\\ord%d',
            "BODY": body,
            "VERB": "PUT",
            "URL": "http://localhost/api/x",
        },
        check=True,
    )
    arguments, *config = seen.read_text().splitlines()
    assert "pass" not in arguments
    assert "K" not in arguments
    assert arguments.split()[-1] == "http://localhost/api/x"
    given_ = dict(line.split(" = ", 1) for line in config)
    assert json.loads(given_["user"]) == 'me:pass"w\\ord%d'
    assert json.loads(given_["data-binary"]) == body
    text = WRITERS["terraform"](wanted(TERRAFORM)).text
    assert hcl_quote(command) in text
    assert "--user" not in text


def test_terraform_templates_are_no_templates() -> None:
    """`${` and `%{` in a name stay what they are."""
    assert hcl_quote('a${b}%{c}"d"\\') == '"a$${b}%%{c}\\"d\\"\\\\"'


@pytest.mark.parametrize("to", ["kubernetes"])
def test_what_a_format_has_no_word_for_is_a_finding(to: str) -> None:
    """Global parameters hold the definitions of the entities."""
    topology = Topology(parameters=(Parameter(name="x", value=1),))
    target = Capabilities.of("4.3")
    findings = WRITERS[to](Wanted(topology=topology, vhost="/", target=target)).findings
    assert [finding.property for finding in findings] == ["definitions"]
    plain = compile_plain(model.Namespace(queues=(model.Queue(name="orders"),)), target)
    findings = WRITERS[to](Wanted(topology=plain, vhost="/", target=target)).findings
    assert [finding.property for finding in findings] == ["queues"]


@pytest.mark.parametrize(
    ("to", "version", "has_it"),
    [
        ("definitions", "3.10", False),
        ("definitions", "4.0", True),
        ("kubernetes", "4.3", False),
        ("bash", "3.10", True),
        ("rabbitmqadmin", "3.10", True),
        ("terraform", "3.10", True),
    ],
)
def test_no_output_makes_a_shovel_before_its_queue(to: str, version: str, has_it: bool) -> None:
    """It would make a classic queue of the name; where it cannot be told to wait, it is named."""
    queues = (model.Queue(name="a", forward_to="b"), model.Queue(name="b"))
    target = Capabilities.of(version)
    topology = compile_plain(model.Namespace(queues=queues), target)
    written = WRITERS[to](Wanted(topology=topology, vhost="/", target=target))
    assert ("amqp:///%2F" in written.text) == has_it
    named = [each for each in written.findings if each.property == "ForwardTo"]
    assert bool(named) != has_it
    if has_it:
        assert written.text.rindex("amqp:///%2F") > written.text.rindex("deadletterqueue") or (
            '"src-predeclared": true' in written.text
        )


@pytest.mark.parametrize("to", sorted(WRITERS))
@pytest.mark.parametrize("flavour", ["bridge", "plain"])
def test_golden_files(to: str, flavour: str, request: pytest.FixtureRequest) -> None:
    """Each writer's output for one namespace, as it was when somebody last looked at it."""
    namespace = model.Namespace(
        tier=model.Tier.BASIC,
        queues=(
            model.Queue(name="Orders", default_message_time_to_live_ms=3_600_000),
            model.Queue(name="orders.eu", forward_dead_lettered_messages_to="orders"),
            model.Queue(name="late", forward_to="orders"),
        ),
        topics=(
            model.Topic(
                name="events",
                subscriptions=(
                    model.Subscription(
                        topic="events",
                        name="Audit",
                        auto_delete_on_idle_ms=600_000,
                        rules=(
                            model.Rule(
                                name="red",
                                filter=model.CorrelationFilter(properties=(("color", "red"),)),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )
    given_ = wanted(namespace, vhost="shop")
    if flavour == "plain":
        given_ = replace(given_, topology=compile_plain(namespace, given_.target, vhost="shop"))
    text = WRITERS[to](given_).text.encode()
    golden = Path(__file__).parent / "golden" / "written" / f"{flavour}.{to}"
    if os.environ.get("BUSBRIDGE_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_bytes(text)
    assert golden.read_bytes() == text


def test_a_check_fits_into_a_line_of_cmd() -> None:
    """Of queues with the longest names, each of them once."""
    namespace = model.Namespace(
        queues=tuple(model.Queue(name=f"{number:03}-{'x' * 170}") for number in range(120))
    )
    found = []
    for words, _ in Cmd().run(WRITERS["cmd"](wanted(namespace)).text).calls:
        if words[1] == "eval":
            found += re.findall(r"[0-9]{3}-x{170}", words[2])
            assert len(words[2]) + words[2].count('"') < 8_191
    assert sorted(found) == [queue.name for queue in namespace.queues]
