"""Operations of the gradients on several robots, for docs/gradients.md.

python tests/gradient_table.py           prints the table
python tests/gradient_table.py --write   puts it into the page
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from robots import ROOT, SHARED_FOLDER, own

import robodyn as rd
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.forward_gradient import forward_gradient
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.rnea_gradient import rnea_gradient
from robodyn.algorithms.tasks import cheapest
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines.cpu.chains.solves import solve_operations

PAGE = ROOT / "docs" / "gradients.md"
SHARED = ("iiwa14", "universalUR5", "panda_arm")
HEAD = (
    "robot",
    "nv",
    "RNEA (alg. 1)",
    "columns (alg. 2)",
    "composites",
    "alg. 3 as written",
    "our chain",
)
_TRACED = 24_000
"""Operations of solves up to which a chain is one program, whose operations can be counted."""


def row(model: rd.Model, base: str) -> tuple[str, ...]:
    """Counts for one robot.

    Algorithm 3 as written: algorithm 2, and the products of H^-1 with two matrices, 4 nv^3; beside them forward
    dynamics for the accelerations and H^-1 itself, which the paper leaves to a step before.
    """

    def count(task) -> int:
        return trace(model, task).operations

    nv, columns, composites = model.nv, count(rnea_gradient()), count(idsva())
    written = count(aba()) + columns + count(INVERSE_MASS_MATRIX) + 4 * nv**3
    chain = cheapest(model, forward_gradient(), ())
    if solve_operations(model, chain) <= _TRACED:
        ours = count(chain)
    else:
        ours = sum(count(stage.algorithm) for stage in chain.stages if hasattr(stage, "algorithm"))
        ours += solve_operations(model, chain)
    numbers = (nv, count(rnea()), columns, composites, written, ours)
    return (f"`{model.name}`, {base}", *(f"{number:,}" for number in numbers))


def table() -> str:
    """The table as Markdown."""
    paths = [own(name) for name in ("arm6", "arm7", "humanoid")]
    paths += [path for name in SHARED if (path := SHARED_FOLDER / f"{name}.urdf").exists()]
    rows = [row(rd.load_urdf(path), "fixed") for path in paths]
    rows.append(row(rd.load_urdf(own("humanoid"), base="floating"), "floating"))
    lines = ["| " + " | ".join(HEAD) + " |", "|---" + "|---:" * (len(HEAD) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(each) + " |" for each in rows)])


if __name__ == "__main__":
    made = table()
    print(made)
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text()
        PAGE.write_text(re.sub(r"(?<=<!-- operations -->\n).*?(?=<!-- end -->)", f"\n{made}\n\n", text, flags=re.S))
