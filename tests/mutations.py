"""XML that is nearly sound: elements to be mutated, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from hypothesis import strategies as st

PROLOGS = ["", "", "", "<!--x-->", "<?xml version='1.0'?>", "<?xml version='1.0' encoding='utf-16'?>"]


class Node:
    """An XML element to be mutated; its text stands before its children."""

    def __init__(self, tag: str, attributes: Any = (), children: Any = (), text: str = "") -> None:
        self.tag, self.attributes, self.children, self.text = tag, dict(attributes), list(children), text

    def __str__(self) -> str:
        attributes = "".join(f" {name}={quoteattr(value)}" for name, value in self.attributes.items())
        return f"<{self.tag}{attributes}>{escape(self.text)}{''.join(map(str, self.children))}</{self.tag}>"

    def copy(self) -> Node:
        return Node(self.tag, self.attributes, [child.copy() for child in self.children], self.text)

    def walk(self) -> list[Node]:
        nodes = [self]
        for node in nodes:
            nodes.extend(node.children)
        return nodes


def mutate(draw: Any, root: Node, evil: Sequence[str], tags: Sequence[str], attributes: Sequence[str]) -> None:
    """Drop, double, rename, move or change one element, wherever it stands."""
    nodes = root.walk()
    node = nodes[draw(st.integers(0, len(nodes) - 1))]
    parent = next((one for one in nodes if node in one.children), None)
    kind = draw(st.sampled_from(["value", "value", "value", "attribute", "drop", "double", "rename", "move", "lose"]))
    if kind == "value" and node.text:
        node.text = draw(st.sampled_from(evil))
    elif kind == "value" and node.attributes:
        node.attributes[draw(st.sampled_from(sorted(node.attributes)))] = draw(st.sampled_from(evil))
    elif kind == "attribute":
        node.attributes[draw(st.sampled_from(attributes))] = draw(st.sampled_from(evil))
    elif kind == "lose" and node.attributes:
        del node.attributes[draw(st.sampled_from(sorted(node.attributes)))]
    elif kind == "rename":
        node.tag = draw(st.sampled_from(tags))
    elif parent is not None and kind == "drop":
        parent.children.remove(node)
    elif parent is not None and kind == "double":
        parent.children.append(node.copy())
    elif parent is not None and kind == "move":
        target = nodes[draw(st.integers(0, len(nodes) - 1))]
        if target not in node.walk():
            parent.children.remove(node)
            target.children.append(node)


def as_bytes(draw: Any, root: Node) -> bytes:
    """The bytes of a file, some of them changed, cut off or put in."""
    prolog = draw(st.sampled_from(PROLOGS))
    data: bytes = (prolog + str(root)).encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16"])))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "cut":
            data = data[:place]
        else:
            data = data[:place] + draw(st.binary(min_size=1, max_size=3)) + data[place + (kind == "flip") :]
    return data
