"""Draws the tree of a robot's links and joints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from robodyn.internals.errors import ArgumentError
from robodyn.tools.plots.style import COLORS, STYLE, label, plain, pyplot

if TYPE_CHECKING:
    from robodyn.core.model import Model

MOST_LINKS = 500
"""Largest number of links of a figure."""
_ROW_INCHES, _INDENT_INCHES, _WIDEST_TREE, _LETTER_INCHES = 0.2, 0.25, 5.0, 0.075
_DOT, _HEAVIEST_DOT = 10.0, 110.0
"""Least and additional area of the dots of links, square points."""


def plot_tree(model: Model) -> Any:
    """Draw a robot's links and joints (see `Model.plot_tree`)."""
    plt = pyplot("plot_tree")
    if len(model.link_names) > MOST_LINKS:
        raise ArgumentError(
            f"plot_tree: got {len(model.link_names)} links; wanted at most {MOST_LINKS}: draw model.subtree(link)"
        )
    graph = model.graph()
    import networkx  # available, since `graph` has imported it

    roots = [node for node, above in graph.in_degree() if above == 0]
    order = [node for root in roots for node in networkx.dfs_preorder_nodes(graph, root)]
    depth = {node: far for root in roots for node, far in networkx.shortest_path_length(graph, root).items()}
    indent = min(_INDENT_INCHES, _WIDEST_TREE / max(1, *depth.values()))
    at = {node: (indent * depth[node], -float(row)) for row, node in enumerate(order)}
    joint = {child: data for _, child, data in graph.edges(data=True)}
    colors = _colors([data["type"] for data in joint.values()])
    words = {node: _words(node, joint.get(node)) for node in order}
    width = max(at[node][0] + _LETTER_INCHES * len(text) for node, text in words.items()) + 0.5
    heaviest = max(data["mass"] for _, data in graph.nodes(data=True)) or 1.0
    with plt.style.context(STYLE):
        figure = plt.figure(figsize=(max(4.0, width), _ROW_INCHES * (len(order) + 3) + 0.4), layout="constrained")
        panel = figure.add_subplot()
        for parent, child in graph.edges():
            (left, top), (right, below) = at[parent], at[child]
            color = colors[joint[child]["type"]]
            panel.plot([left, left, right], [top, below, below], color=color, linewidth=1.5, zorder=1)
        for node in order:
            area = _DOT + _HEAVIEST_DOT * graph.nodes[node]["mass"] / heaviest
            color = colors[joint[node]["type"]] if node in joint else "#000000"
            panel.scatter(*([x] for x in at[node]), s=area, color=color, zorder=2)
            plain(panel.text(at[node][0] + 0.12, at[node][1], words[node], va="center"))
        lines = {each: plt.Line2D([], [], color=color) for each, color in colors.items()}
        constraint_line = _constraints(panel, model, at)
        lines |= {} if constraint_line is None else {"constraint": constraint_line}
        if lines:
            figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4)
        panel.set(xlim=(-0.2, max(3.5, width)), ylim=(-len(order) + 0.3, 0.7))
        panel.set_axis_off()
        plain(panel.set_title(f"{label(model.name)}: areas are masses, the largest {heaviest:.3g} kg", loc="left"))
    return figure


def _colors(types: list[str]) -> dict[str, str]:
    """Colours by joint type, in the order of first occurrence; fixed joints are grey."""
    moving = [each for each in dict.fromkeys(types) if each != "fixed"]
    grey = {"fixed": "#999999"} if "fixed" in types else {}
    return grey | {each: COLORS[k % len(COLORS)] for k, each in enumerate(moving)}


def _words(link: str, joint: dict[str, Any] | None) -> str:
    """Text beside a link: its name, and the joint that moves it."""
    if joint is None:
        return label(link)
    follows = f", follows {label(joint['mimic'].joint)}" if joint["mimic"] is not None else ""
    return f"{label(link)}  ({label(joint['joint'])}{follows})"


def _constraints(panel: Any, model: Model, places: dict[str, tuple[float, float]]) -> Any:
    """Draw dotted lines between links that a constraint connects; returns one of them, or None."""
    drawn = None
    for constraint in model.constraints:
        ends = [getattr(constraint, name, None) for name in ("link", "to")]
        if all(end in places for end in ends):
            points = zip(*(places[str(end)] for end in ends), strict=True)
            (drawn,) = panel.plot(*points, color="#000000", linestyle=":", linewidth=1.2, zorder=1)
    return drawn
