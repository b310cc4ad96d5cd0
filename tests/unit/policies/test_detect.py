"""The format of an input is found from its content."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.errors import ReadError, UnknownFormat
from policies.readers import FORMATS, decode, read
from tests.unit.policies.inputs import INPUTS, Input


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("param x string = 'a'\nresource q 'Microsoft.ServiceBus/namespaces@2021' = {}", "Bicep"),
        ('resource "azurerm_servicebus_queue" "q" {\n}', "terraform show -json"),
        ('{"version": 4, "terraform_version": "1.9.8", "resources": []}', "terraform show -json"),
        ('{"$schema": "https://x/deploymentParameters.json#", "parameters": {}}', "--parameters"),
        ('{"keyName": "r", "primaryConnectionString": "x"}', "add the primaryKey to the rule"),
        ('{"hello": "world"}', "Known are an ARM template"),
        ("[]", "Known are an ARM template"),
        ("hello", "Known are an ARM template"),
        ("<html/>", "Known are ATOM feeds and entries"),
    ],
)
def test_an_unknown_input_is_refused_with_a_hint(text: str, hint: str) -> None:
    """The hint says what it looks like, and which command makes something readable of it."""
    with pytest.raises(UnknownFormat) as caught:
        read(text, "input")

    assert str(caught.value).startswith("input: This is ")
    assert hint in str(caught.value)


def test_a_format_can_be_given_by_name() -> None:
    """An unknown name is refused with the known ones."""
    with pytest.raises(UnknownFormat, match="There is no format 'yaml'"):
        read("{}", "input", form="yaml")
    with pytest.raises(ReadError, match="This is not the Service Bus emulator's Config"):
        read("{}", "input", form="emulator")


@pytest.mark.parametrize("given", INPUTS, ids=lambda each: each.name)
def test_a_format_that_does_not_fit_the_file_is_an_error(given: Input) -> None:
    """Not an empty namespace, with which everything would be pruned."""
    text = Path(given.path).read_text()
    fitting = []
    for form in FORMATS:
        with suppress(ReadError):
            read(text, given.name, form=form.name)
            fitting.append(form.name)
    assert len(fitting) <= 1


def test_a_file_that_is_no_text_is_refused_with_its_line() -> None:
    """Latin-1 and binaries are not guessed."""
    with pytest.raises(ReadError) as caught:
        decode(b"{\n\xff\xfe", "c.json")

    assert str(caught.value) == "c.json: line 2: The file is no text in UTF-8. Save it as UTF-8."


@given(
    st.one_of(
        st.text(max_size=60),
        st.text('<>/a&;"= ', max_size=60),
        st.text('{}[]",:1ae ', max_size=60),
    ),
    st.sampled_from([None, *(each.name for each in FORMATS)]),
)
@example("\r\x1f", "atom")
def test_no_text_makes_a_reader_fail_in_another_way(text: str, form: str | None) -> None:
    """Any text is read or refused by name, in any format."""
    try:
        read(text, "input", form=form)
    except ReadError as error:
        assert str(error).startswith("input: ")  # noqa: PT017
