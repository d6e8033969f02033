"""Forward dynamics by scans: the table of methods."""

from __future__ import annotations

from collections.abc import Callable

from robodyn.engines.scan.algorithms.aba_scan import forward as forward_by_riccati
from robodyn.engines.scan.algorithms.constraint_force import cfa
from robodyn.engines.scan.algorithms.forward_crba import forward_by_mass_matrix
from robodyn.engines.scan.algorithms.hybrid_abia import hybrid_abia, hybrid_abia_fused
from robodyn.engines.scan.algorithms.jsiia import forward_by_columns
from robodyn.engines.scan.states import State
from robodyn.internals.arguments import Array

FORWARD: dict[str, Callable[[State, Array], None]] = {
    "aba_scan": forward_by_riccati,
    "crba": forward_by_mass_matrix,
    "jsiia": forward_by_columns,
    "hybrid_abia": hybrid_abia,
    "hybrid_abia_fused": hybrid_abia_fused,
    "cfa": cfa,
}
"""Functions that fill accelerations (B, nv), by method."""
