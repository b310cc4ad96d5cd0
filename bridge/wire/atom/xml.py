"""XML text as a tree in which every element knows its line and path.

Several documents may follow one another in one text, such as a file with the answers of several
requests. A document type declaration is refused: Service Bus writes none, and without one no XML
entity is expanded. The work is proportional to the text's length, whatever the content.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from xml.parsers import expat

DEPTH_MAX = 100
"""Levels of elements in one another; real feeds have about 8."""

SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

_TYPE = f"{SCHEMA_INSTANCE} type"
"""`xsi:type`, as expat writes an attribute's namespace and name."""


class XmlError(ValueError):
    """Error for a text that is no XML, or XML that is refused.

    Attributes:
        line: from 1; 0 when the line is not known.
        message: the fault.
        remedy: what to do about the fault.
    """

    def __init__(self, line: int, message: str, remedy: str) -> None:
        super().__init__(f"Line {line}: {message}" if line else message)
        self.line = line
        self.message = message
        self.remedy = remedy


@dataclass(slots=True)
class Element:
    """An element; names are without their prefix.

    Attributes:
        name: the local name.
        namespace: the namespace's URI, or "".
        attributes: values by name; a name with a namespace is `uri name`.
        line: the line on which the element begins, from 1.
        texts: the pieces of the element's own text.
    """

    name: str
    namespace: str
    attributes: dict[str, str]
    line: int = 0
    parent: Element | None = field(default=None, repr=False, compare=False)
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The element's own text, its spaces included."""
        return "".join(self.texts)

    @property
    def path(self) -> str:
        """The names of the elements from the document's root to this one, each behind a `/`."""
        names = []
        each: Element | None = self
        while each is not None and each.parent is not None:
            names.append(each.name)
            each = each.parent
        return "".join(f"/{name}" for name in reversed(names))

    def find(self, *names: str) -> Element | None:
        """Return the first child of that name; with more names, go on in the child so found."""
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
        return self.attributes.get(_TYPE, "").rpartition(":")[2]

    @property
    def is_nil(self) -> bool:
        """Whether `xsi:nil` says that there is no value."""
        return self.attributes.get(f"{SCHEMA_INSTANCE} nil", "").strip() in ("true", "1")


def parse(text: str, *, elements_max: int = sys.maxsize) -> list[Element]:
    """Return the root elements of the documents in a text.

    Raises:
        XmlError: the text is no XML, or has more than `elements_max` elements.
    """
    body = _without_declarations(text.lstrip("\ufeff"))
    parser = expat.ParserCreate(namespace_separator=" ")
    builder = _Builder(parser, elements_max)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.buffer_text = True
    try:
        parser.Parse(f"<documents>{body}</documents>", True)
    except expat.ExpatError as error:
        raise _refusal(body, error) from error
    if outside := builder.root.text.strip():
        message = f"There is text outside of any element: {outside[:20]!r}."
        raise XmlError(0, message, "Remove it.")
    return builder.root.children


def _without_declarations(text: str) -> str:
    """Blank out every `<?xml ...?>`: the parser gets one root around all, which may hold none."""
    parts = []
    done = 0
    while (begin := text.find("<?xml", done)) >= 0 and (end := text.find("?>", begin)) >= 0:
        is_declaration = not text[begin + 5 : begin + 6].isalnum()
        until = end + 2 if is_declaration else begin + 5
        parts += [text[done:begin], _blank(text[begin:until]) if is_declaration else "<?xml"]
        done = until
    return "".join(parts) + text[done:]


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text) if "\n" in text else " " * len(text)


def _refusal(body: str, error: expat.ExpatError) -> XmlError:
    # expat counts lines as XML does: a CR alone ends a line, too.
    line = re.split(r"\r\n|\r|\n", body)[error.lineno - 1] if error.lineno else ""
    if "<!DOCTYPE" in line.upper():
        message = "The XML has a document type declaration."
        return XmlError(error.lineno, message, "Remove it; no entity is expanded.")
    message = f"This is no well-formed XML: {expat.errors.messages[error.code]}."
    return XmlError(error.lineno, message, "Mend the XML.")


class _Builder:
    def __init__(self, parser: expat.XMLParserType, elements_max: int) -> None:
        self._parser = parser
        self._left = elements_max
        self.root = Element("", "", {})
        self._open = [self.root]

    def start(self, qualified: str, attributes: dict[str, str]) -> None:
        if len(self._open) == 1 and qualified == "documents" and self.root.name == "":
            self.root.name = qualified
            return
        line = self._parser.CurrentLineNumber
        if len(self._open) > DEPTH_MAX:
            message = f"More than {DEPTH_MAX} levels of nesting."
            raise XmlError(line, message, "Flatten the document.")
        if not self._left:
            raise XmlError(line, "There are too many elements.", "Ask for less at once.")
        self._left -= 1
        namespace, _, name = qualified.rpartition(" ")
        parent = self._open[-1]
        element = Element(name, namespace, attributes, line, parent)
        parent.children.append(element)
        self._open.append(element)

    def end(self, _: str) -> None:
        if len(self._open) > 1:
            self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].texts.append(text)
