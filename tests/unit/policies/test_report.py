"""The loss report and the mapping table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.properties import PROPERTIES, EntityKind
from bridge.topology.capabilities import Capabilities, UnsupportedVersion
from bridge.topology.compiler import compile as compile_bridge
from bridge.topology.plain import compile_plain
from bridge.topology.resources import Finding
from bridge.topology.selection import selection
from policies import losses, mapping, report, report_table
from policies.grade import Flavour, Grade, Subject, decided
from policies.readers.reading import Reading
from policies.report_table import table
from tests.unit.topology.entities import RULES, namespaces


def graded(entity: model.Entity, name: str, flavour: str, version: str) -> tuple[str, str]:
    """Return grade and note of a property."""
    queues = (entity,) if isinstance(entity, model.Queue) else ()
    topics = (entity,) if isinstance(entity, model.Topic) else ()
    if isinstance(entity, model.Subscription):
        topics = (model.Topic(name=entity.topic, subscriptions=(entity,)),)
    namespace = model.Namespace(queues=queues, topics=topics)
    made = report.make(Reading(namespace=namespace))
    path = entity.path if isinstance(entity, model.Subscription) else entity.name
    (found,) = [each for each in made.entries if (each.entity, each.name) == (path, name)]
    case = found.grades[Flavour(flavour), version]
    return case.grade.value, case.note


def subscription(rule: model.Rule) -> model.Subscription:
    """Return a subscription with one rule."""
    return model.Subscription(topic="t", name="s", rules=(rule,))


RED = model.Rule(name="r", filter=model.CorrelationFilter(properties=(("color", "red"),)))
LABELLED = model.Rule(name="r", filter=model.CorrelationFilter(label="red"))
PRICED = model.Rule(name="r", filter=model.CorrelationFilter(properties=(("price", 1.5),)))
SQL = model.Rule(name="r", filter=model.SqlFilter(expression="a > 1"))
CHANGING = model.Rule(name="r", filter=model.TrueFilter(), action="SET a = 1")


@pytest.mark.parametrize(
    ("entity", "name", "target", "grade", "note"),
    [
        (model.Queue(name="q"), "LockDuration", "bridge 3.10", "approximate", "consumer_timeout"),
        (model.Queue(name="q"), "LockDuration", "bridge 4.0", "by the bridge", ""),
        (model.Queue(name="q"), "LockDuration", "plain 4.0", "approximate", "no renewal"),
        (model.Queue(name="q"), "MaxDeliveryCount", "bridge 4.3", "exact", ""),
        (model.Queue(name="q"), "MaxDeliveryCount", "plain 4.0", "exact", ""),
        (model.Queue(name="q"), "MaxDeliveryCount", "plain 4.3", "approximate", "basic.reject"),
        (model.Queue(name="q", default_message_time_to_live_ms=315_360_000_000),
         "DefaultMessageTimeToLive", "plain 3.10", "exact", ""),
        (model.Queue(name="q", default_message_time_to_live_ms=315_360_000_001),
         "DefaultMessageTimeToLive", "plain 3.10", "lost", "10 years"),
        (model.Queue(name="q", default_message_time_to_live_ms=315_360_000_001),
         "DefaultMessageTimeToLive", "bridge 3.10", "by the bridge", "no policy"),
        (model.Queue(name="q"), "DefaultMessageTimeToLive", "plain 3.10", "exact", ""),
        (model.Queue(name="q", auto_delete_on_idle_ms=300_000), "AutoDeleteOnIdle", "plain 4.0",
         "approximate", "merely sent to"),
        (model.Queue(name="q"), "AutoDeleteOnIdle", "plain 4.0", "exact", ""),
        (model.Queue(name="q", requires_session=True), "RequiresSession", "plain 4.3", "lost",
         "single active consumer"),
        (model.Queue(name="q", user_metadata="x"), "UserMetadata", "bridge 4.0", "by the bridge",
         ""),
        (model.Queue(name="q", status=model.EntityStatus.DISABLED), "Status", "plain 4.0", "lost",
         "permissions"),
        (model.Queue(name="q", max_message_size_kb=20_480), "MaxMessageSizeInKilobytes",
         "bridge 4.0", "approximate", "max_message_size"),
        (model.Queue(name="q", max_message_size_kb=20_480), "MaxMessageSizeInKilobytes",
         "bridge 3.10", "by the bridge", ""),
        (model.Queue(name="q", max_message_size_kb=16_384), "MaxMessageSizeInKilobytes",
         "bridge 4.3", "approximate", "max_message_size"),
        (model.Queue(name="q", max_message_size_kb=16_000), "MaxMessageSizeInKilobytes",
         "bridge 4.3", "by the bridge", ""),
        (model.Queue(name="q", requires_session=True, forward_to="r"), "ForwardTo", "bridge 4.3",
         "approximate", "Messages stay"),
        (model.Queue(name="q", requires_session=True, forward_to="r"), "ForwardTo", "plain 4.3",
         "lost", "messages stay"),
        (subscription(model.DEFAULT_RULE), "Rule $Default", "plain 3.10", "exact", ""),
        (subscription(RED), "Rule r", "plain 4.3", "exact", ""),
        (subscription(LABELLED), "Rule r", "plain 4.3", "lost", "headers only"),
        (subscription(PRICED), "Rule r", "plain 4.3", "lost", "these types"),
        (subscription(SQL), "Rule r", "plain 4.3", "lost", "no SQL"),
        (subscription(CHANGING), "Rule r", "plain 4.3", "lost", "as it was sent"),
    ],
)  # fmt: skip
def test_a_property_is_graded_by_value_flavour_and_version(
    entity: model.Entity, name: str, target: str, grade: str, note: str
) -> None:
    """The table of what differs where."""
    flavour, version = target.split()

    found_grade, found_note = graded(entity, name, flavour, version)

    assert grade == found_grade
    assert note in found_note


def test_every_property_of_the_model_has_a_row_for_every_kind_that_has_it() -> None:
    """Nothing that can be read is left out of the report."""
    for name, known in PROPERTIES.items():
        kinds = [kind for row in mapping.ROWS if row.property == name for kind in row.kinds()]
        assert sorted(k.value for k in known.kinds) == sorted(k.value for k in kinds), name
    assert all(not row.kinds() or row.kinds() <= set(EntityKind) for row in mapping.ROWS)


@settings(max_examples=40, deadline=None)
@given(namespaces(), st.sampled_from(report.TARGETS), st.sampled_from(Flavour))
def test_the_report_is_never_better_than_what_the_compiler_finds(
    namespace: model.Namespace, version: str, flavour: Flavour
) -> None:
    """Each finding of the compiler is in the report, with that grade or a worse one."""
    capabilities = Capabilities.of(version)
    compiler = compile_bridge if flavour is Flavour.BRIDGE else compile_plain
    made = report.make(Reading(namespace=namespace), flavours=[flavour], versions=[version])
    grades = {
        (each.entity.lower(), each.name): each.grades[flavour, version].grade
        for each in made.entries
    }

    for finding in compiler(namespace, capabilities).findings:
        found = [grade for key, grade in grades.items() if _is_about(key, finding)]
        if finding.entity:
            assert found, finding
        assert not found or Grade(finding.grade).rank <= max(grade.rank for grade in found), finding


def _is_about(key: tuple[str, str], finding: Finding) -> bool:
    """A subscription's size is a property of its topic; the namespace's findings are of any."""
    entity, name = key
    path = finding.entity.lower()
    if finding.property == "Rules":
        return entity == path and name == "Rule " + finding.message.split("'")[1]
    if finding.property == "MaxSizeInMegabytes" and "/subscriptions/" in path:
        path = path.split("/subscriptions/")[0]
    return name == finding.property and (not path or entity == path)


@given(RULES, st.sampled_from(report.TARGETS))
def test_a_rule_is_exact_on_rabbitmq_alone_only_when_a_binding_says_all_of_it(
    rules: tuple[model.Rule, ...], version: str
) -> None:
    """The grade agrees with the bindings that are made."""
    capabilities = Capabilities.of(version)
    (row,) = [row for row in mapping.ROWS if row.property == "Rules"]
    for rule in rules:
        subject = Subject(entity=subscription(rule), capabilities=capabilities, rule=rule)
        case = decided(row.plain, subject)

        assert (case.grade is Grade.EXACT) == (selection(rule, capabilities)[1] == "")


LOSSY = model.Namespace(
    name="ns",
    queues=(model.Queue(name="q", status=model.EntityStatus.DISABLED), model.Queue(name="r")),
)


def test_strict_makes_anything_lost_an_error() -> None:
    """Naming entity, property, targets and what to do; findings of the input too."""
    finding = Finding(entity="x", property="name", grade="lost", message="t.json: line 3: gone")
    reading = Reading(namespace=LOSSY, findings=(finding,))
    found = losses.of(reading, Flavour.PLAIN, "4.0")

    with pytest.raises(losses.UnacceptedLosses) as caught:
        losses.check(found, [])

    assert str(caught.value) == (
        "lost: q:Status: RabbitMQ has no disabled queue; take permissions away instead.\n"
        "lost: x:name: t.json: line 3: gone"
    )


@pytest.mark.parametrize(
    ("accepted", "left"),
    [
        (["q:Status", "x:name"], []),
        (["Q:STATUS"], ["x:name"]),
        (["*:Status"], ["x:name"]),
        (["q:*", "x:*"], []),
        (["q:Statu?"], ["q:Status", "x:name"]),
        (["Status"], ["q:Status", "x:name"]),
    ],
)
def test_a_loss_is_accepted_by_its_name(accepted: list[str], left: list[str]) -> None:
    """So that a new one is not."""
    finding = Finding(entity="x", property="name", grade="lost", message="gone")
    found = losses.of(Reading(namespace=LOSSY, findings=(finding,)), Flavour.PLAIN, "4.0")
    assert [losses.name_of(each) for each in losses.unaccepted(found, accepted)] == left


def test_what_the_input_and_the_table_lose_is_in_the_total() -> None:
    """Of the table, of JSON, and of what every other command says."""
    finding = Finding(entity="x", property="name", grade="lost", message="gone")
    rule = model.Rule(name="big", filter=model.SqlFilter(expression="size > 3"))
    topic = model.Topic(
        name="t", subscriptions=(model.Subscription(topic="t", name="s", rules=(rule,)),)
    )
    reading = Reading(namespace=replace(LOSSY, topics=(topic,)), findings=(finding,))
    made = report.make(reading, flavours=[Flavour.PLAIN], versions=["4.0"])
    target = (Flavour.PLAIN, "4.0")
    names = [losses.name_of(each) for each in made.losses(target)]
    assert names == ["q:Status", "t/Subscriptions/s:Rule big", "x:name"]
    assert made.count(target, Grade.LOST) == 3
    assert "3 lost" in report_table.table(made)
    assert json.loads(report.to_json(made))["counts"]["plain 4.0"]["lost"] == 3


def test_no_shovel_is_promised_that_the_compiler_does_not_make() -> None:
    """Into a circle, through a subscription too, and to what is not there."""
    subscription = model.Subscription(topic="t", name="s", forward_to="A")
    namespace = model.Namespace(
        queues=(
            model.Queue(name="a", forward_to="t"),
            model.Queue(name="alone", forward_to="elsewhere"),
            model.Queue(name="begin", forward_to="end"),
            model.Queue(name="end"),
        ),
        topics=(model.Topic(name="t", subscriptions=(subscription,)),),
    )
    made = report.make(Reading(namespace=namespace), flavours=[Flavour.PLAIN], versions=["4.3"])
    notes = {
        each.entity: each.message
        for each in made.losses((Flavour.PLAIN, "4.3"))
        if each.property == "ForwardTo"
    }
    moved = {path for path, note in notes.items() if note.startswith("A shovel moves")}
    shovels = compile_plain(namespace, Capabilities.of("4.3")).shovels
    assert (len(shovels), moved) == (1, {"begin"})
    assert "no limit of hops" in notes["a"]
    assert notes["a"] == notes["t/Subscriptions/s"]
    assert "no such entity" in notes["alone"]


def test_strict_lets_what_is_approximate_pass() -> None:
    """A queue of defaults loses nothing."""
    namespace = model.Namespace(queues=(model.Queue(name="q"),))

    for flavour in Flavour:
        losses.check(losses.of(Reading(namespace=namespace), flavour, "4.3"), [])


def test_the_table_shows_what_is_not_exact_once_with_footnotes() -> None:
    """Equal notes are one footnote; versions are named where they differ."""
    text = table(report.make(Reading(namespace=LOSSY)))

    lines = text.splitlines()
    assert lines[0].split() == ["entity", "property", "value", "bridge", "plain"]
    (status,) = [line for line in lines if line.startswith("q ") and " Status " in line]
    assert "Disabled" in status
    assert "by the bridge" in status
    (lock,) = [line for line in lines if line.startswith("q ") and " LockDuration " in line]
    assert "3.10: approximate [" in lock
    assert "4.0, 4.3: by the bridge" in lock
    assert text.count("take permissions away instead.") == 1
    assert not any(" UserMetadata " in line for line in lines)
    assert "plain, RabbitMQ 4.3: " in lines[-1]


def test_the_table_can_show_everything_and_colours() -> None:
    """Colours are a terminal's, never in a file."""
    made = report.make(Reading(namespace=LOSSY), flavours=[Flavour.PLAIN], versions=["4.0"])

    assert " UserMetadata " in table(made, show_exact=True)
    assert "\x1b[31mlost" in table(made, is_coloured=True)
    assert "\x1b" not in table(made)


def test_json_is_for_scripts_and_the_same_every_time() -> None:
    """Grades and notes by target, counts beside them."""
    made = report.make(Reading(namespace=LOSSY))

    text = report.to_json(made)

    assert text == report.to_json(report.make(Reading(namespace=LOSSY)))
    form = json.loads(text)
    assert (form["schema"], form["namespace"]) == (1, "ns")
    (status,) = [
        each for each in form["entries"] if (each["entity"], each["property"]) == ("q", "Status")
    ]
    assert (status["kind"], status["value"]) == ("Queue", "Disabled")
    assert status["grades"]["plain 3.10"]["grade"] == "lost"
    assert form["counts"]["plain 4.3"]["lost"] == 1
    assert form["versions"]["3.10"]["consumer timeout"] == "one for the node (30 minutes)"
    assert form["versions"]["4.3"]["delayed retry"].startswith("yes")
    assert sum(form["counts"]["bridge 4.0"].values()) == len(form["entries"])


def test_a_version_that_is_too_old_is_refused() -> None:
    """As the compiler refuses it."""
    with pytest.raises(UnsupportedVersion, match=r"3\.9 is older than 3\.10"):
        report.make(Reading(namespace=LOSSY), versions=["3.9"])


def test_both_names_of_an_entity_are_shown_where_they_differ() -> None:
    """As Service Bus spells it, and as RabbitMQ does when the bridge runs."""
    reading = Reading(namespace=model.Namespace(queues=(model.Queue(name="Orders"),)))
    made = report.make(reading, versions=["4.3"])
    assert "Orders (orders)  LockDuration" in table(made)
    entry = json.loads(report.to_json(made))["entries"][-1]
    assert (entry["entity"], entry["rabbitmqName"]) == ("Orders", "orders")
    alone = report.make(reading, flavours=[Flavour.PLAIN], versions=["4.3"])
    assert "(orders)" not in table(alone)
