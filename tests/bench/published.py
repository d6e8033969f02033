"""Figures that others published, measured on their hardware: never mixed with ours, shown beside them."""

from __future__ import annotations

from dataclasses import dataclass

GPU = "published: NVIDIA A100 40 GB PCIe, Futhark 0.26.2 (CUDA)"
CPU = "published: AMD EPYC 7413, one core, Futhark's C backend"
RNEA: dict[str, dict[int, float]] = {
    GPU: {1_000: 0.77e-3, 10_000: 1.29e-3, 100_000: 1.64e-3, 1_000_000: 14.5e-3, 4_000_000: 57.6e-3},
    CPU: {1_000: 165e-6, 10_000: 1.66e-3, 100_000: 17.0e-3, 1_000_000: 181e-3},
}
"""Seconds of inverse dynamics by the number of bodies, branching 2."""

CRBA: dict[float, dict[str, dict[int, float]]] = {
    1.0: {GPU: {40_000: 198e-3}},
    2.0: {GPU: {1_000: 1.26e-3, 10_000: 3.4e-3, 40_000: 9.9e-3}},
}
"""Seconds of H and c by branching and number of bodies."""

GRID_HARDWARE = "NVIDIA RTX 5090, float32, 1,024 states a call"
GRID_BATCH = 1024


@dataclass(frozen=True)
class Grid:
    """Microseconds of a whole batch, by GRiD and by those that it measured beside itself."""

    robot: str
    ours: str
    query: str
    kernel_us: float
    call_us: float
    others_us: dict[str, float]


GRID = (
    Grid("iiwa14", "arm7", "inverse_dynamics", 13.0, 27.5, {"MJX": 135, "MuJoCo Warp": 209, "Pinocchio": 33}),
    Grid(
        *("iiwa14", "arm7", "forward_dynamics", 27.0, 39.0),
        {"MJX": 333, "MuJoCo Warp": 239, "frax": 109, "Pinocchio": 238},
    ),
    Grid("iiwa14", "arm7", "inverse_dynamics_gradient", 30.8, 59.4, {"Pinocchio": 361}),
    Grid("G1", "humanoid, floating", "inverse_dynamics", 72.9, 106.0, {"Pinocchio": 325}),
    Grid(
        *("G1", "humanoid, floating", "forward_dynamics", 459.0, 486.0),
        {"MJX": 789, "MuJoCo Warp": 419, "Pinocchio": 995},
    ),
    Grid("G1", "humanoid, floating", "inverse_dynamics_gradient", 649.0, 1132.0, {"Pinocchio": 1542}),
    Grid("G1", "humanoid, floating", "forward_dynamics_gradient", 880.0, 1358.0, {"MJX": 12670, "Pinocchio": 2937}),
)
"""Robots beside those of ours that are most like them."""


@dataclass(frozen=True)
class Claim:
    """What a text says of a figure, and how ours are to be looked at.

    `ask`: "speed-up" (the largest over the recursion on one thread), "growth" (of times with size), "overtaking" (from
    which size on the first of `series` is faster than each of the others), or "order" (of `series`, at both ends).
    `group`: how names of groups of points begin. Scans are called by their methods.
    """

    where: str
    said: str
    ask: str
    group: str
    series: tuple[str, ...] = ()


SCANS_2016 = (
    Claim("2016a, abstract", "inverse dynamics up to 500 times faster on the GPU", "speed-up", "inverse dynamics"),
    Claim("2016a, abstract", "forward dynamics up to 100 times faster on the GPU", "speed-up", "forward dynamics"),
    Claim(
        "2016a, figure 1(a)",
        "inverse dynamics of one robot: the serial time grows linearly with the links, the GPU's like their logarithm",
        "growth",
        "inverse dynamics, one robot",
        ("rnea, one thread", "rnea", "twist_pair"),
    ),
    Claim(
        "2016a, figure 1(b)",
        "forward dynamics of one robot: the serial mass matrix method is the slowest of all",
        "order",
        "forward dynamics, one robot",
        ("aba, one thread", "crba, one thread", "jsiia", "hybrid_abia"),
    ),
    Claim(
        "2016a, figure 1(b)",
        "the hybrid algorithm is faster than the GPU's jsiia from 100 links on",
        "overtaking",
        "forward dynamics, one robot",
        ("hybrid_abia", "jsiia"),
    ),
    Claim(
        "2016a, figure 1(b)",
        "the serial articulated-body algorithm is faster than the GPU's jsiia from 190 links on",
        "overtaking",
        "forward dynamics, one robot",
        ("aba, one thread", "jsiia"),
    ),
    Claim(
        "2016a, figure 2",
        "inverse dynamics of 1,000 groups: about 100 times faster on the GPU than on several threads, 10 and 100 links",
        "order",
        "inverse dynamics, 100 links",
        ("rnea, all threads", "rnea", "twist_pair", "GPU engine"),
    ),
    Claim(
        "2016a, figure 3(a)",
        "forward dynamics, 10 links: the GPU's jsiia is the fastest for any number of groups",
        "order",
        "forward dynamics, 10 links",
        ("aba, all threads", "crba, all threads", "jsiia", "hybrid_abia"),
    ),
    Claim(
        "2016a, figure 3(b)",
        "forward dynamics, 200 links: the hybrid algorithm is always the fastest, the mass matrix method on several "
        "threads the slowest",
        "order",
        "forward dynamics, 200 links",
        ("aba, all threads", "crba, all threads", "jsiia", "hybrid_abia"),
    ),
    Claim(
        "2016b, figure 2",
        "constraint forces take longer for few links and are the fastest for many",
        "overtaking",
        "forward dynamics, one robot",
        ("cfa", "jsiia", "hybrid_abia"),
    ),
    Claim(
        "2016b, figure 3(a)",
        "10 links, more than 100 groups: jsiia and cfa take about as long, both less than the hybrid algorithm",
        "order",
        "forward dynamics, 10 links",
        ("jsiia", "cfa", "hybrid_abia"),
    ),
    Claim(
        "2016b, figure 3(b)",
        "200 links: cfa is the fastest, jsiia the slowest",
        "order",
        "forward dynamics, 200 links",
        ("jsiia", "cfa", "hybrid_abia"),
    ),
)
