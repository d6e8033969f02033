"""The CPU engine against the reference engine on every robot at hand, in double and in single precision.

python tests/accuracy.py           prints the tables of docs/accuracy_engines.md
python tests/accuracy.py --write   writes them there

Some minutes on one core, most of them for compiling; half a minute where the code is in the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import robots
from oracles.quantities import CANCELLED, Array, States, inertia, random_states, relative
from pages import publish

import robodyn as rd
from robodyn.compile.llvm.target import host_target

N_STATES = 100
CODES = ("unrolled", "rolled")
COLUMNS = {
    "float64": ("ID", "H", "bias", "H inverse", "FD residual"),
    "float32": ("ID", "H", "bias", "FD residual"),
}


@dataclass
class Row:
    """One robot: degrees of freedom by base, and the worst error by dtype and column."""

    name: str
    nv: list[int] = field(default_factory=list)
    worst: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, dtype: str, errors: dict[str, float]) -> None:
        """Take in the errors of one model and one kind of code."""
        for column, error in errors.items():
            self.worst[dtype, column] = max(error, self.worst.get((dtype, column), 0.0))


def measure(path: Path, bases: tuple[str, ...]) -> Row:
    """A robot on the bases, mimics followed, in both precisions and both kinds of code."""
    row = Row(path.stem)
    for base in bases:
        for model in _models(path, base):
            row.nv.append(model.nv)
            judge = rd.Dynamics(model, engine="reference")
            states = _states(judge)
            for dtype in COLUMNS:
                for code in CODES:
                    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code, threads=1)
                    row.add(dtype, _errors(dyn, judge, states))
    return row


def _models(path: Path, base: str) -> Iterator[rd.Model]:
    """The robot with mimics followed, or free where a file's mimics lead nowhere; none where nothing moves."""
    for mimic in ("follow", "ignore"):
        try:
            model = rd.load_urdf(path, base=base, mimic=mimic, strict=False)
        except rd.LoadError:
            continue
        if model.nv:
            yield model
        return


def _states(judge: rd.Dynamics) -> States:
    """Random states that single precision holds exactly, so that both precisions are asked about the same ones."""
    states = random_states(judge, (), seed=1, n=N_STATES)
    tau = judge.inverse_dynamics(states.q, states.qd, states.step)
    given = {"q": states.q, "qd": states.qd, "qdd": states.qdd, "tau": tau}
    return replace(states, **{name: np.float64(np.float32(array)) for name, array in given.items()})


def _errors(dyn: rd.Dynamics, judge: rd.Dynamics, s: States) -> dict[str, float]:
    """Errors by column; those that need the inverse of H only where it has one."""

    def error(ours: Array, wanted: Array, least: Array | float = 0.0) -> float:
        return relative(ours.astype(np.float64), wanted, least)

    def single(*names: str) -> list[Array]:
        return [getattr(s, name).astype(dyn.dtype) for name in names]

    least = CANCELLED * inertia(judge, s)
    found = {
        "ID": error(dyn.inverse_dynamics(*single("q", "qd", "qdd")), judge.inverse_dynamics(s.q, s.qd, s.qdd), least),
        "H": error(dyn.mass_matrix(*single("q")), judge.mass_matrix(s.q)),
        "bias": error(dyn.bias_force(*single("q", "qd")), judge.bias_force(s.q, s.qd), least),
    }
    try:
        qdd = dyn.forward_dynamics(*single("q", "qd", "tau")).astype(np.float64)
        found["FD residual"] = error(judge.inverse_dynamics(s.q, s.qd, qdd), s.tau)
        if dyn.dtype == np.float64:
            found["H inverse"] = error(dyn.mass_matrix_inverse(s.q), judge.mass_matrix_inverse(s.q))
    except rd.SingularError:
        pass
    return found


def table(dtype: str, own: list[Row], shared: list[Row]) -> str:
    """Our robots one by one, and the worst of all, with the name of the real robot that it is of."""
    columns = COLUMNS[dtype]
    lines = [f"| robot | dof | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 2)}"]
    for row in own:
        errors = [f"{row.worst[dtype, c]:.0e}" if (dtype, c) in row.worst else "-" for c in columns]
        lines.append(f"| {' | '.join([row.name, ' / '.join(map(str, row.nv)), *errors])} |")
    for title, rows in (("models/", own), (f"{len(shared)} real robots", shared)):
        if rows:
            worst = [max((row.worst.get((dtype, c), 0.0), row.name) for row in rows) for c in columns]
            lines.append(f"| **worst of {title}** | | {' | '.join(f'**{e:.0e}** {name}' for e, name in worst)} |")
    return "\n".join(lines)


def main(write: bool) -> None:
    """Measure everything; print it or write it."""
    own = [measure(path, ("fixed", "floating")) for path in robots.OWN]
    shared = [row for row in (measure(path, ("floating",)) for path in robots.SHARED) if row.nv]
    tables = {f"cpu {dtype}": table(dtype, own, shared) for dtype in COLUMNS}
    publish(tables | {"cpu level": f"Measured with code for `{host_target().level}`."}, write=write)


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
