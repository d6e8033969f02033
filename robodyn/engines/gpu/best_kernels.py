"""The kernels to choose where nothing was measured: those that were the best on one GPU, where all were measured.

One for all batches, so that a row has the same bits in each: the one that is at most the fewest times slower than the
fastest at any of them. `python -m tests.bench gpu --fit` measures all on another GPU.
"""

from __future__ import annotations

MEASURED_ON = "NVIDIA H200"
BEST: dict[tuple[str, int, int], dict[str, str]] = {
    ("rnea_q_qd_qdd", 7, 7): {"float32": "unrolled", "float64": "unrolled"},
    ("aba_q_qd_tau", 7, 7): {"float32": "unrolled", "float64": "unrolled"},
    ("crba", 7, 7): {"float32": "unrolled", "float64": "unrolled"},
    ("idsva_q_qd_qdd", 7, 7): {"float32": "unrolled", "float64": "unrolled"},
    ("forward_gradient_q_qd_tau", 7, 7): {"float32": "unrolled", "float64": "unrolled, split"},
    ("rnea_q_qd_qdd", 13, 4): {"float32": "unrolled", "float64": "unrolled"},
    ("aba_q_qd_tau", 13, 4): {"float32": "unrolled", "float64": "unrolled"},
    ("crba", 13, 4): {"float32": "unrolled", "float64": "unrolled"},
    ("idsva_q_qd_qdd", 13, 4): {"float32": "unrolled", "float64": "unrolled"},
    ("forward_gradient_q_qd_tau", 13, 4): {"float32": "unrolled, split", "float64": "unrolled, split"},
    ("rnea_q_qd_qdd", 32, 11): {"float32": "unrolled", "float64": "unrolled"},
    ("aba_q_qd_tau", 32, 11): {"float32": "unrolled", "float64": "unrolled"},
    ("crba", 32, 11): {"float32": "unrolled", "float64": "warp"},
    ("idsva_q_qd_qdd", 32, 11): {"float32": "warp", "float64": "warp"},
    ("forward_gradient_q_qd_tau", 32, 11): {"float32": "unrolled, split", "float64": "unrolled, split"},
}
"""By task, bodies and levels of the robot, and dtype."""
