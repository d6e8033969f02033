"""Ladders: planar robots of any size with a loop a rung."""

from __future__ import annotations

import robodyn as rd


def ladder(count: int) -> tuple[rd.Model, list[rd.Weld]]:
    """A ladder of four-bars in a plane: arms that stand side by side, each joined to the next one by a bar."""
    bar = '<inertial><origin xyz="{}"/><mass value="1"/>' + "".join(
        f'{"<inertia " if k == 0 else ""}{name}="{0.0833 if name[1] == name[2] else 0}"{"/>" if k == 5 else " "}'
        for k, name in enumerate(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
    )

    def body(name: str, parent: str, place: str, centre: str) -> str:
        link = f'<link name="{name}">{bar.format(centre)}</inertial></link>'
        ends = f'<parent link="{parent}"/><child link="{name}"/><origin xyz="{place}"/><axis xyz="0 0 1"/>'
        return f'{link}<joint name="j{name}" type="continuous">{ends}</joint>'

    arms = [body(f"a{k}", "world", f"{k} 0 0", "0 0.5 0") for k in range(count + 1)]
    bars = [body(f"b{k}", f"a{k}", "0 1 0", "0.5 0 0") for k in range(count)]
    model = rd.load_urdf(f'<robot name="ladder"><link name="world"/>{"".join(arms + bars)}</robot>')
    held = [
        rd.Weld(f"b{k}", f"a{k + 1}", at=(1, 0, 0), to_at=(0, 1, 0), rows=("x", "y"), name=f"pin{k}")
        for k in range(count)
    ]
    return model, held
