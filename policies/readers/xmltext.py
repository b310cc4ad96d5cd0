"""XML text as a tree in which every element knows its line and path.

Several documents may follow one another in one text, as somebody gets who appends the answers of
several requests to one file. A document type declaration is refused: no such input has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from policies.errors import Fault, Place, ReadError

_DECLARATION = re.compile(r"<\?xml\b.*?\?>", re.DOTALL)

DEPTH_MAX = 100
"""Levels of elements in one another; real feeds have about 8."""

TYPE_ATTRIBUTE = "http://www.w3.org/2001/XMLSchema-instance type"
"""`xsi:type`, as expat writes an attribute's namespace and name."""


@dataclass(slots=True)
class Element:
    """An element; names are without their prefix.

    Attributes:
        name: the local name.
        namespace: the namespace's URI, or "".
        attributes: by name, those with a namespace as `uri name`.
    """

    name: str
    namespace: str
    attributes: dict[str, str]
    place: Place
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def find(self, *names: str) -> Element | None:
        """Return the first child of that name, or the first grandchild of those names."""
        found = self
        for name in names:
            match = next((each for each in found.children if each.name == name), None)
            if match is None:
                return None
            found = match
        return found

    def all(self, name: str) -> list[Element]:
        """Return the children of that name."""
        return [each for each in self.children if each.name == name]

    def text_of(self, *names: str) -> str:
        """Return the text of `find`, or "" when there is no such element."""
        found = self.find(*names)
        return found.text.strip() if found else ""

    def raw_of(self, *names: str) -> str:
        """Return the text of `find` with its spaces, or "" when there is no such element."""
        found = self.find(*names)
        return found.text if found else ""

    @property
    def type(self) -> str:
        """The value of `xsi:type` without its prefix, or ""."""
        return self.attributes.get(TYPE_ATTRIBUTE, "").rpartition(":")[2]

    def walk(self) -> Iterator[Element]:
        """Yield this element and everything below it, in the order of the text."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text: str, source: str) -> list[Element]:
    """Return the root elements of the documents in a text.

    Raises:
        ReadError: it is no XML; the error names the line.
    """
    body = _DECLARATION.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text.lstrip("\ufeff"))
    parser = expat.ParserCreate(namespace_separator=" ")
    builder = _Builder(parser, source)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.buffer_text = True
    try:
        parser.Parse(f"<documents>{body}</documents>", True)
    except expat.ExpatError as error:
        # A line ends for expat as XML has it: with CR alone, too.
        line = re.split(r"\r\n|\r|\n", body)[error.lineno - 1] if error.lineno else ""
        if "<!DOCTYPE" in line.upper():
            message = "The XML has a document type declaration."
            remedy = "Remove it; no entity is expanded."
        else:
            message = f"This is no well-formed XML: {expat.errors.messages[error.code]}."
            remedy = "Mend the XML."
        fault = Fault(place=Place(line=error.lineno), message=message, remedy=remedy)
        raise ReadError(source, [fault]) from error
    if builder.root.text.strip():
        message = f"There is text outside of any element: {builder.root.text.strip()[:20]!r}."
        raise ReadError(source, [Fault(place=Place(), message=message, remedy="Remove it.")])
    return builder.root.children


class _Builder:
    def __init__(self, parser: expat.XMLParserType, source: str) -> None:
        self._parser = parser
        self._source = source
        self.root = Element("", "", {}, Place())
        self._open = [self.root]

    def start(self, qualified: str, attributes: dict[str, str]) -> None:
        if len(self._open) == 1 and qualified == "documents" and self.root.name == "":
            self.root.name = qualified
            return
        if len(self._open) > DEPTH_MAX:
            fault = Fault(
                place=Place(line=self._parser.CurrentLineNumber),
                message=f"More than {DEPTH_MAX} levels of nesting.",
                remedy="Flatten the document.",
            )
            raise ReadError(self._source, [fault])
        namespace, _, name = qualified.rpartition(" ")
        path = "/".join([each.name for each in self._open[1:]] + [name])
        place = Place(line=self._parser.CurrentLineNumber, path="/" + path)
        element = Element(name, namespace, attributes, place)
        self._open[-1].children.append(element)
        self._open.append(element)

    def end(self, _: str) -> None:
        if len(self._open) > 1:
            self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].text += text
