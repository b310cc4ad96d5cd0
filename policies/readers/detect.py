"""Detection of an input's format from its content, and reading of any format."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from policies.errors import Fault, Position, ReadError, UnknownFormat
from policies.readers import (
    armtemplate,
    atom,
    az,
    definitions,
    emulator,
    explorer,
    jsontext,
    terraform,
    xmltext,
)
from policies.readers.jsontext import Node
from policies.readers.reading import Reading


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name on the command line, and a title for people."""

    name: str
    title: str


FORMATS = (
    Format("arm", "an ARM template (or what `bicep build` makes)"),
    Format("atom", "ATOM XML of a live namespace"),
    Format("az", "output of `az servicebus ... -o json`"),
    Format("definitions", "a RabbitMQ definitions file"),
    Format("emulator", "the Service Bus emulator's Config.json"),
    Format("explorer", "Service Bus Explorer's export"),
    Format("terraform", "output of `terraform show -json`"),
)
"""Every format that can be read."""

_JSON_TESTS: dict[str, Callable[[Node], bool]] = {
    "emulator": emulator.is_this,
    "arm": armtemplate.is_this,
    "terraform": terraform.is_this,
    "definitions": definitions.is_this,
    "az": az.is_this,
}
_ANY_CASE = frozenset({"arm", "az", "emulator"})
"""Formats whose keys are Azure's, in any case."""

_HINTS = (
    (
        re.compile(r"^\s*(?:@\w|param\s+\w|var\s+\w|resource\s+\w+\s+'|module\s+\w+\s+')", re.M),
        "It looks like Bicep: run 'az bicep build --stdout --file FILE' and read the JSON.",
    ),
    (
        re.compile(r"^\s*(?:resource|module|provider|variable|locals|data|terraform)\b.*\{", re.M),
        "It looks like Terraform's language: run 'terraform show -json' on a plan or state.",
    ),
    (
        re.compile(r'"terraform_version"'),
        "It looks like a state file of Terraform: run 'terraform show -json' on it.",
    ),
    (
        re.compile(r"deploymentParameters\.json", re.I),
        "It is a parameter file: give the template, and this file with --parameters.",
    ),
    (
        re.compile(r'"primaryConnectionString"'),
        "It looks like the keys of an authorization rule: add the primaryKey to the rule where "
        "'az servicebus ... authorization-rule list' has it.",
    ),
)


def decode(raw: bytes, source: str) -> str:
    """Return the text of a file: UTF-8, or UTF-16 as PowerShell's `>` writes it.

    Raises:
        ReadError: the file is neither.
    """
    encoding = "utf-8-sig"
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        fault = Fault(
            place=Position(line=line),
            message=f"The file is no text in {encoding.removesuffix('-sig').upper()}.",
            remedy="Save it as UTF-8.",
        )
        raise ReadError(source, [fault]) from error


def read(
    text: str,
    source: str,
    *,
    form: str | None = None,
    parameters: Mapping[str, object] | None = None,
    vhost: str | None = None,
    namespace: str | None = None,
) -> Reading:
    """Return the namespace that a text describes.

    Args:
        text: the input.
        source: the input's name in messages, usually the file's name.
        form: the name of the input's format; `None` finds the format from the content.
        parameters: values of an ARM template's parameters.
        vhost: which vhost of a definitions file.
        namespace: which namespace, when the input has several.

    Raises:
        UnknownFormat: the text is in no known format, or not in the format `form`.
        ReadError: the text has faults; all of them are named.
    """
    known = [each.name for each in FORMATS]
    if form is not None and form not in known:
        raise _unknown(source, f"There is no format {form!r}.", f"Known: {', '.join(known)}.")
    if not text.strip("\ufeff \t\r\n"):
        raise _unknown(source, "It is empty.", "Give a file that defines something.")
    if (form or _kind(text)) in ("atom", "explorer", "xml"):
        return _read_xml(text, source, form)
    if form is None and _kind(text) != "json":
        raise _unknown(source, "This is in no known format.", _hint(text))
    return _read_json(text, source, form, parameters, vhost, namespace)


def _kind(text: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")[:2]
    if start.startswith("<"):
        return "xml"
    return "json" if start.startswith(("{", "[", "//", "/*")) else ""


def _read_xml(text: str, source: str, form: str | None) -> Reading:
    roots = xmltext.parse(text, source)
    if form in (None, "atom") and atom.is_this(roots):
        return atom.read_documents(roots, source)
    if form in (None, "explorer") and explorer.is_this(roots):
        return explorer.read_documents(roots, source)
    names = ", ".join(f"<{root.name}>" for root in roots) or "no element"
    raise _unknown(
        source,
        f"This is XML of {'another' if form else 'an unknown'} kind: {names}.",
        "Known are ATOM feeds and entries, and Service Bus Explorer's <Entities>.",
    )


def _read_json(
    text: str,
    source: str,
    form: str | None,
    parameters: Mapping[str, object] | None,
    vhost: str | None,
    namespace: str | None,
) -> Reading:
    document = jsontext.parse(text, source)
    found = next((name for name, is_this in _JSON_TESTS.items() if is_this(document)), None)
    if form not in (None, found) and (found or form != "az"):  # `az` lists nothing as `[]`
        raise _other(source, form, found, text)
    if (form or found) in _ANY_CASE:
        jsontext.check_case(document, source)
    match form or found:
        case "emulator":
            return emulator.read_document(document, source, namespace=namespace)
        case "arm":
            return armtemplate.read_document(
                document, source, parameters=parameters, namespace=namespace
            )
        case "terraform":
            return terraform.read_document(document, source, namespace=namespace)
        case "definitions":
            return definitions.read_document(document, source, vhost=vhost)
        case "az":
            return az.read_document(document, source, namespace=namespace)
    raise _unknown(source, "This is JSON of an unknown kind.", _hint(text))


def _other(source: str, form: str | None, found: str | None, text: str) -> UnknownFormat:
    titles = {each.name: each.title for each in FORMATS}
    remedy = f"It is {titles[found]}: say --from {found}, or nothing." if found else _hint(text)
    return _unknown(source, f"This is not {titles[str(form)]}.", remedy)


def _hint(text: str) -> str:
    for pattern, hint in _HINTS:
        if pattern.search(text):
            return hint
    return "Known are " + "; ".join(f"{each.title}" for each in FORMATS) + "."


def _unknown(source: str, message: str, remedy: str) -> UnknownFormat:
    return UnknownFormat(source, [Fault(place=Position(), message=message, remedy=remedy)])
