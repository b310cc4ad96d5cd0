"""`busbridge filter test --rule` needs no namespace."""

from __future__ import annotations

import json

import pytest

from bridge.cli.main import main

RED = ("--property", "color=red", "--subject", "order")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict], str]:
    """Return exit code, rows and what is said."""
    code = main(["filter", "test", *words])
    found = capsys.readouterr()
    return code, [json.loads(line) for line in found.out.splitlines()], found.err


def test_a_rule_that_takes_the_message_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With what its action makes of the copy; exit code 0."""
    code, rows, said = run(
        capsys, "--rule", "color = 'red'", "--action", "SET n = 1; REMOVE color", *RED
    )
    assert (code, said) == (0, "The subscription gets it.\n")
    assert rows == [
        {
            "rule": "rule",
            "takes": True,
            "filter": "color = 'red'",
            "why": [],
            "changes": ["SET n = 1", "REMOVE color"],
            "failure": None,
        }
    ]


def test_a_rule_that_does_not_take_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3, when no rule does."""
    code, rows, said = run(capsys, "--rule", "weight > 5", "--rule", "color = 'blue'", *RED)
    assert (code, said) == (3, "The subscription does not get it.\n")
    assert [(row["rule"], row["why"]) for row in rows] == [
        ("rule1", ["weight > 5: the message has no weight"]),
        ("rule2", ["color = 'blue': color is 'red'"]),
    ]


def test_of_two_names_that_differ_in_case_the_one_with_the_value_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first counts: it is compared, and it is what an action removes."""
    both = ("--property", "Color=red", "--property", "COLOR=blue")
    assert run(capsys, "--rule", "color = 'blue'", *both)[1][0]["why"] == [
        "color = 'blue': Color is 'red'"
    ]
    rule = ("--rule", "color = 'red'", "--action", "REMOVE color")
    assert run(capsys, *rule, *both)[1][0]["changes"] == ["REMOVE Color"]


def test_a_rule_that_fails_says_what_becomes_of_the_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is dead-lettered, or dropped."""
    code, rows, said = run(capsys, "--rule", "color > 5", *RED)
    assert code == 3
    assert "dead-letters the message if it is set to" in said
    assert rows[0]["failure"] == "The operator > does not take a string and a number."


def test_each_rule_with_an_action_gives_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    """As in Service Bus."""
    rules = ("--rule", "1=1", "--rule", "color = 'red'", "--action", "SET n = 1")
    assert run(capsys, *rules, *RED)[2] == (
        "The subscription gets it: 2 copies, one for each rule with an action.\n"
    )


def test_a_wrong_filter_is_refused_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    code, rows, said = run(capsys, "--rule", "color = ", *RED)
    assert (code, rows) == (2, [])
    assert "The end at character 9: a value or a condition is expected." in said


def test_without_a_rule_there_is_nothing_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor without a message."""
    assert "name a subscription, or give --rule" in run(capsys, *RED)[2]
