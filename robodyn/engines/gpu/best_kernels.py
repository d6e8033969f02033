"""The default kernels for GPUs without measurements: the best ones on an NVIDIA H200.

Each entry holds for all batch sizes, so that a state's result has the same bits in any batch. It is the kernel whose
worst slowdown over all batch sizes, relative to the fastest kernel at that size, is smallest. The command
`python -m tests.bench gpu --fit` measures all kernels on another GPU.
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
"""The best kernel by task, number of bodies and of tree levels of the robot, and dtype."""
