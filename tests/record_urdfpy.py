"""What urdfpy reads of robots, as JSON: run by an interpreter that urdfpy can be imported in (Python 3.8, NumPy 1.23).

python3.8 -m venv there && there/bin/pip install urdfpy 'numpy<1.24'
there/bin/python tests/record_urdfpy.py models/*.urdf > tests/recorded/urdfpy.json

urdfpy pins a networkx that Python 3.10 cannot import, and uses names that NumPy 1.24 dropped; this package needs newer
ones of both. So its objects are recorded: every attribute that a reader may look at, by the names that they have.
"""

import json
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

LEFT_OUT = ("visual", "collision", "material", "transmission", "gazebo")
ATTRIBUTES = {
    "robot": ("name",),
    "link": ("name",),
    "inertial": ("mass", "inertia", "origin"),
    "joint": ("name", "joint_type", "parent", "child", "axis", "origin"),
    "limit": ("lower", "upper", "effort", "velocity"),
    "dynamics": ("damping", "friction"),
    "mimic": ("joint", "multiplier", "offset"),
}


def record(what, thing):
    """The attributes of a part, arrays as lists; None where there is none."""
    if thing is None:
        return None
    found = {name: getattr(thing, name) for name in ATTRIBUTES[what]}
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def read(path):
    """What urdfpy makes of a file without its shapes, whose files it would open."""
    import urdfpy

    tree = ElementTree.parse(path)
    parents = {child: parent for parent in tree.iter() for child in parent}
    for tag in LEFT_OUT:
        for element in list(tree.iter(tag)):
            parents[element].remove(element)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "robot.urdf"
        tree.write(str(copy))
        robot = urdfpy.URDF.load(str(copy))
    found = record("robot", robot)
    found["links"] = [dict(record("link", link), inertial=record("inertial", link.inertial)) for link in robot.links]
    found["joints"] = []
    for joint in robot.joints:
        parts = {part: record(part, getattr(joint, part)) for part in ("limit", "dynamics", "mimic")}
        found["joints"].append(dict(record("joint", joint), **parts))
    return found


if __name__ == "__main__":
    robots = {}
    for given in sys.argv[1:]:
        name = Path(given).stem
        try:
            robots[name] = read(given)
        except Exception as error:  # of joint types and files that urdfpy does not take
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    json.dump(robots, sys.stdout, sort_keys=True)
    print()
