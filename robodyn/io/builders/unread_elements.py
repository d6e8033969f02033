"""Finds the known children of XML elements, and reports all other contents."""

from __future__ import annotations

from collections.abc import Callable

from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element

_NONE = frozenset[str]()


class Survey:
    """Checks the contents of elements of one language.

    Args:
        language: name of the language, for messages.
        ignored_tags: elements that do not affect the dynamics.
        ignored_attributes: (tag, attribute) of attributes that do not affect the dynamics.
    """

    def __init__(
        self, language: str, ignored_tags: frozenset[str], ignored_attributes: frozenset[tuple[str, str]]
    ) -> None:
        self._language, self._ignored_tags, self._ignored_attributes = language, ignored_tags, ignored_attributes

    def __call__(
        self,
        element: Element,
        subject: str,
        once: frozenset[str],
        attributes: frozenset[str],
        notes: Notes,
        repeated: frozenset[str] = _NONE,
        text: bool = False,
        keep: Callable[[Element], None] | None = None,
    ) -> dict[str, Element]:
        """Returns the children of an element by tag, and reports unknown contents.

        Args:
            element: the element.
            subject: subject of findings.
            once: tags of children that may occur once. If there are several the first is returned, as in urdfdom,
                Gazebo and Drake, and the others are reported.
            attributes: known attributes. All others are reported.
            notes: collects findings.
            repeated: tags of children that may occur several times. They are not returned. Children that are neither
                in `once` nor in `repeated` are reported.
            text: True if the element may contain text. Otherwise text is reported.
            keep: called with each child that does not affect the dynamics.

        Raises:
            LoadError: xacro that was not expanded.
        """
        if not attributes.issuperset(element.attributes):
            for attribute in element.attributes:
                if attribute not in attributes:
                    self._report_attribute(element, attribute, subject, notes)
        if element.pieces is not None and not text:
            notes.gather("stray-text", subject, f"text inside <{element.tag}> is not read; skipped", element.line)
        parts: dict[str, Element] = {}
        if not element.children:  # the most common case
            return parts
        for child in element.children:
            tag = child.tag
            if tag in once:
                if parts.setdefault(tag, child) is not child:
                    notes.gather("repeated-tag", subject, f"a second <{tag}>; the first is read", child.line)
            elif tag not in repeated:
                self.report_tag(element.tag, child, subject, notes, keep)
        return parts

    def report_tag(
        self,
        parent: str,
        child: Element,
        subject: str,
        notes: Notes,
        keep: Callable[[Element], None] | None = None,
    ) -> None:
        """Reports a child that is not read. `keep` is called with it if it does not affect the dynamics."""
        code, consequence = ("ignored-tag", "skipped") if keep is None else ("kept-tag", "kept as text")
        known, tag = child.tag in self._ignored_tags, quoted(child.tag)[1:-1]
        if keep is not None and (known or (":" in tag and not tag.startswith("xacro:"))):
            keep(child)
        if known:
            notes.gather(code, subject, f"<{tag}> has no part in dynamics; {consequence}", child.line)
            return
        if tag.startswith("xacro:"):
            text = (
                f"<{tag}> is xacro, not {self._language}; expand the file with xacro first, as robodyn.load_xacro does"
            )
            raise LoadError(f"{subject}{at_line(child.line)}: {text}")
        if ":" in tag:
            notes.gather(code, subject, f"<{tag}> belongs to another program; {consequence}", child.line)
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
