"""The fastest kernels of queries on one GPU, where all were measured: what is chosen by where nothing was.

`python -m tests.bench gpu --fit` measures them on another.
"""

from __future__ import annotations

MEASURED_ON = "NVIDIA H100 80GB HBM3"
BATCHES = (1, 8, 32, 256, 1024, 4096, 16_384, 65_536)
FASTEST: dict[tuple[str, int, int], dict[str, tuple[str, ...]]] = {
    ("rnea_q_qd_qdd", 7, 7): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("aba_q_qd_tau", 7, 7): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("crba", 7, 7): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("idsva_q_qd_qdd", 7, 7): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("forward_gradient_q_qd_tau", 7, 7): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("rnea_q_qd_qdd", 13, 4): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("aba_q_qd_tau", 13, 4): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("crba", 13, 4): {
        "float32": 8 * ("unrolled",),
        "float64": ("unrolled", "unrolled", "warp", "warp", "block", "warp", "warp", "warp"),
    },
    ("idsva_q_qd_qdd", 13, 4): {
        "float32": 8 * ("unrolled",),
        "float64": ("unrolled", "unrolled", "block", "block", "warp", "unrolled", "thread", "thread"),
    },
    ("forward_gradient_q_qd_tau", 13, 4): {
        "float32": ("warp", "block", "warp", "block", "block", "block, split", "warp, split", "warp, split"),
        "float64": ("warp", "warp", "warp", "warp", "warp", "warp", "warp, split", "warp, split"),
    },
    ("rnea_q_qd_qdd", 32, 11): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("aba_q_qd_tau", 32, 11): {
        "float32": 8 * ("unrolled",),
        "float64": 8 * ("unrolled",),
    },
    ("crba", 32, 11): {
        "float32": ("unrolled", "unrolled", "warp", "warp", "warp", "warp", "warp", "warp"),
        "float64": ("unrolled", "unrolled", "block", "block", "block", "warp", "warp", "warp"),
    },
    ("idsva_q_qd_qdd", 32, 11): {
        "float32": ("warp", "warp", "warp", "warp", "warp", "warp", "thread", "thread"),
        "float64": ("warp", "warp", "warp", "warp", "warp", "warp", "thread", "thread"),
    },
    ("forward_gradient_q_qd_tau", 32, 11): {
        "float32": ("block", "block", "block", "block", "block, split", "block", "block, split", "block, split"),
        "float64": ("block", "block", "block", "block", "warp", "warp, split", "warp, split", "warp, split"),
    },
}
"""By task, bodies and levels of the robot, and dtype: the fastest kernel for each of `BATCHES`."""
