"""Small SDF texts for tests."""

from __future__ import annotations

from collections.abc import Sequence

INERTIAL = """<inertial><pose>0.1 -0.2 0.3 0.4 0.5 0.6</pose><mass>{mass}</mass><inertia><ixx>0.3</ixx><ixy>0.01</ixy>
<ixz>-0.02</ixz><iyy>0.25</iyy><iyz>0.03</iyz><izz>0.2</izz></inertia></inertial>"""
POSE = "<pose>0.3 -0.1 0.5 0.2 -0.4 0.6</pose>"


def sdf(*parts: str, version: str = "1.9", model: str = "", name: str = "m") -> str:
    """A file of one model."""
    return (
        f'<sdf version="{version}" xmlns:drake="http://drake.mit.edu"><model name="{name}"{model}>{"".join(parts)}'
        "</model></sdf>"
    )


def link(name: str, pose: str = "", mass: float = 1.5, more: str = "") -> str:
    return f'<link name="{name}">{pose}{INERTIAL.format(mass=mass)}{more}</link>'


def axis(xyz: str = "0 0 1", more: str = "", tag: str = "axis", expressed_in: str = "") -> str:
    given = f' expressed_in="{expressed_in}"' if expressed_in else ""
    return f"<{tag}><xyz{given}>{xyz}</xyz>{more}</{tag}>"


def joint(name: str, parent: str, child: str, kind: str = "revolute", pose: str = "", more: str | None = None) -> str:
    """A joint; `more` is an oblique axis where it is not given, of types that want one."""
    if more is None:
        more = axis("1 2 -2") if kind in ("revolute", "continuous", "prismatic", "screw") else ""
    return f'<joint name="{name}" type="{kind}">{pose}<parent>{parent}</parent><child>{child}</child>{more}</joint>'


def chain(kinds: Sequence[str], **options: str) -> str:
    """Links l0, l1, ... with joints j1, j2, ... between them, frames everywhere."""
    parts = [link("l0")]
    for i, kind in enumerate(kinds, start=1):
        parts.append(link(f"l{i}", f"<pose>{0.3 * i} 0.1 -0.2 0.1 {0.2 * i} -0.3</pose>", mass=1.0 + 0.3 * i))
        more = axis("1 0 0") + axis("0 1 0", tag="axis2") if kind == "universal" else None
        parts.append(joint(f"j{i}", f"l{i - 1}", f"l{i}", kind, POSE, more))
    return sdf(*parts, **options)
