"""What stands in an XML element: what is read, and a finding for everything else."""

from __future__ import annotations

from robodyn.builders.elements import Element
from robodyn.builders.findings import Notes, at_line
from robodyn.errors import LoadError
from robodyn.messages import quoted

_NONE = frozenset[str]()


class Survey:
    """Looks over elements of one language.

    Args:
        language: its name, for messages.
        ignored_tags: elements that have no part in dynamics.
        ignored_attributes: the like attributes, with the tags of their elements: (tag, attribute).
        first: of several elements where one is allowed the first is read and the others are reported; if not, they are
            refused.
    """

    def __init__(
        self,
        language: str,
        ignored_tags: frozenset[str],
        ignored_attributes: frozenset[tuple[str, str]],
        first: bool = False,
    ) -> None:
        self._language, self._ignored_tags, self._ignored_attributes = language, ignored_tags, ignored_attributes
        self._first = first

    def __call__(
        self,
        element: Element,
        subject: str,
        once: frozenset[str],
        attributes: frozenset[str],
        notes: Notes,
        repeated: frozenset[str] = _NONE,
        text: bool = False,
    ) -> dict[str, Element]:
        """The children that may come `once`, by tag; children that are neither those nor `repeated`, other attributes,
        and text where none belongs are reported. Raises LoadError for a second one of `once`, where the language has no
        rule for that, and for xacro that was not expanded."""
        if not attributes.issuperset(element.attributes):
            for attribute in element.attributes:
                if attribute not in attributes:
                    self._report_attribute(element, attribute, subject, notes)
        if element.pieces is not None and not text:
            notes.gather("stray-text", subject, f"text inside <{element.tag}> is not read; skipped", element.line)
        parts: dict[str, Element] = {}
        if not element.children:  # as most
            return parts
        for child in element.children:
            tag = child.tag
            if tag in once:
                if tag not in parts:
                    parts[tag] = child
                elif self._first:
                    message = f"more than one <{tag}> where one is allowed; the first is read"
                    notes.gather("repeated-tag", subject, message, child.line)
                else:
                    raise LoadError(f"{subject}{at_line(child.line)}: a second <{tag}>; at most one is allowed")
            elif tag not in repeated:
                self.report_tag(element.tag, child, subject, notes)
        return parts

    def report_tag(self, parent: str, child: Element, subject: str, notes: Notes) -> None:
        """A finding for a child that is not read."""
        if child.tag in self._ignored_tags:
            notes.gather("ignored-tag", subject, f"<{child.tag}> has no part in dynamics; skipped", child.line)
            return
        tag = quoted(child.tag)[1:-1]
        if tag.startswith("xacro:"):
            text = f"<{tag}> is xacro, not {self._language}; expand the file with xacro first"
            raise LoadError(f"{subject}{at_line(child.line)}: {text}")
        if ":" in tag:
            notes.gather("ignored-tag", subject, f"<{tag}> belongs to another program; skipped", child.line)
        else:
            notes.gather("unknown-tag", subject, f"<{tag}> is not known inside <{parent}>; skipped", child.line)

    def _report_attribute(self, element: Element, attribute: str, subject: str, notes: Notes) -> None:
        if attribute == "xmlns" or attribute.startswith("xmlns:"):
            return
        shown = f"attribute {quoted(attribute)} of <{element.tag}>"
        if (element.tag, attribute) in self._ignored_attributes:
            notes.gather("ignored-attribute", subject, f"{shown} has no part in dynamics; skipped", element.line)
        elif ":" in attribute:
            notes.gather("ignored-attribute", subject, f"{shown} belongs to another program; skipped", element.line)
        else:
            notes.gather("unknown-attribute", subject, f"{shown} is not known here; skipped", element.line)
