"""What a URDF file says that other readers ignore: read here without our own reader."""

from __future__ import annotations

from pathlib import Path

from lxml import etree

Mimics = dict[str, tuple[str, float, float]]
"""Joint -> the joint it follows, multiplier, offset."""


def parse(path: Path) -> etree._Element:
    """The robot element. Some real files use prefixes that they do not declare."""
    return etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True, remove_comments=True))


def armatures(path: Path) -> dict[str, float]:
    """Armature by joint: a rotor's inertia times its reduction squared, as transmissions of Drake and ROS give them."""
    found = {}
    for transmission in parse(path).findall("transmission"):
        rotor, motor = transmission.find("actuator/{*}rotor_inertia"), transmission.find("actuator/motorInertia")
        if rotor is not None:
            inertia, reduction = rotor.get("value"), transmission.find("actuator/{*}gear_ratio").get("value")
        elif motor is not None:
            inertia, reduction = motor.text, transmission.findtext("actuator/mechanicalReduction")
        else:
            continue
        found[transmission.find("joint").get("name")] = float(inertia) * float(reduction) ** 2
    return found


def mimics(path: Path) -> Mimics:
    """Which joints follow others."""
    return {
        joint.get("name"): (m.get("joint"), float(m.get("multiplier", 1.0)), float(m.get("offset", 0.0)))
        for joint in parse(path).findall("joint")
        if (m := joint.find("mimic")) is not None
    }
