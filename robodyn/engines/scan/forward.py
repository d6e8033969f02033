"""Forward dynamics by scans: the methods by their names."""

from __future__ import annotations

from collections.abc import Callable

from robodyn.arguments import Array
from robodyn.engines.scan.states import State

FORWARD: dict[str, Callable[[State, Array], None]] = {}
"""Each fills accelerations (B, nv)."""
