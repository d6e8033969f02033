"""Answers of an aarch64 process against those of the machine that emulates it.

    python answers.py record FILE     # answers of this machine
    python answers.py compare FILE    # in emulation: the same questions, to the bit

`.ci/aarch64` runs both, with this folder's parent among Python's paths. The second also compares random programs with
LLVM's code for aarch64, and words with those of LLVM's assembler.
"""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
from random_programs import random_program, run

import robodyn as rd
from robodyn.compile.llvm.jit import Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.llvm.unrolled_code import unrolled_module
from robodyn.compile.neon.program import assembled
from robodyn.compile.x86.driver import driver_module
from robodyn.compile.x86.memory import LoadedImage
from robodyn.engines.cpu.backends import NEON, backend_of
from robodyn.engines.query_table import QUERIES

_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 7
"""No multiple of the states in a register."""
_ASKED = {
    "arm7": ("float64 state", "float32 batch"),
    "quadruped": ("float64 batch", "float32 state"),
    "humanoid": ("float64 state",),
}
"""Precisions, and single states or a batch, of each robot."""


def asked(states: dict[str, np.ndarray]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Names of questions and the arrays that answer them. `states`: those of robots; missing ones are drawn."""
    for name, ways in _ASKED.items():
        base = "fixed" if name == "arm7" else "floating"
        model = rd.load_urdf(_ROOT / "models" / f"{name}.urdf", base=base)
        rng, key = np.random.default_rng(1), f"{name} states"
        if key not in states:
            drawn = model.random_configuration(rng, (_ROWS,)), *rng.normal(size=(2, _ROWS, model.nv))
            states[key] = np.concatenate(drawn, axis=1)
        q, v, a = np.split(states[key], [model.nq, model.nq + model.nv], axis=1)
        for way in ways:
            dtype, shape = way.split()
            dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, threads=1)
            if platform.machine() == "aarch64":
                task = QUERIES["inverse_dynamics"].plain_task(model)
                assert backend_of(dyn.engine.request(task)) is NEON
            of = [each.astype(dtype) if shape == "batch" else each[0].astype(dtype) for each in (q, v, a)]
            label = f"{name} {way}"
            yield f"{label} inverse_dynamics", [dyn.inverse_dynamics(*of)]
            yield f"{label} forward_dynamics", [dyn.forward_dynamics(*of)]
            yield f"{label} mass_matrix", [dyn.mass_matrix(of[0])]
            yield f"{label} kinematics", [dyn.forward_kinematics(of[0])]
            yield f"{label} jacobian", [dyn.jacobian(of[0], len(model.link_names) - 1)]
            yield f"{label} inverse_dynamics_gradient", list(dyn.inverse_dynamics_gradient(*of))
            yield f"{label} forward_dynamics_gradient", list(dyn.forward_dynamics_gradient(*of))


def compare_random_programs() -> int:
    """Programs of all operations, with few registers and with all, in both kinds of code and both precisions."""
    numbers = 0
    for seed, (narrow, name) in enumerate(itertools.product((False, True), ("float64", "float32"))):
        program, target, dtype = random_program(seed, 80), host_target(), np.dtype(name)
        target = target.for_one_state if narrow else target
        width = target.width(dtype)
        driver = Code(compile_object(driver_module(width, target), target, 1), target)
        theirs = Code(compile_object(unrolled_module(program, dtype, target), target, 1), target)
        images = (assembled(program, dtype, target, registers=n).image() for n in (8, 32))
        ours = [LoadedImage(image, driver.address("drive")) for image in images]
        rng = np.random.default_rng(seed)
        for rows in (1, 2, 3, 2 * width + 3):
            given = [2 * rng.normal(size=(rows, port.size)).astype(dtype) for port in program.inputs]
            given[0][0, 0] = rng.choice([np.nan, -np.inf, 1e20, 2.0**21, 2.0**21 + 1, 2.0**50, 2.0**50 + 1])
            found = []
            for code in (theirs, *ours):
                found.append([np.full((rows, port.size), 777.0, dtype) for port in program.outputs])
                run(code.address("kernel"), [*given, *found[-1]])
            for outputs in found[1:]:
                for one, other in zip(found[0], outputs, strict=True):
                    np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}, {name}, {rows} rows")
                    numbers += one.size
    return numbers


def require_words() -> None:
    """LLVM's assembler for this processor makes the same words of a program's listing."""
    llvm.initialize_native_asmparser()
    for narrow, name in itertools.product((False, True), ("float64", "float32")):
        target = host_target().for_one_state if narrow else host_target()
        code = assembled(random_program(9, 300), np.dtype(name), target, registers=12)
        lines = code.listing().splitlines()[1:]
        text = "".join(f'module asm "{line.strip()}"\n' for line in lines)
        made = llvm.ObjectFileRef.from_data(compile_object(text, target, 1))
        words = b"".join(section.data() for section in made.sections() if section.is_text())
        own = code.image().code[: 4 * len(lines)]
        adrp = [k for k, line in enumerate(lines) if "adrp" in line]
        assert all(words[4 * k : 4 * k + 4] == own[4 * k : 4 * k + 4] for k in range(len(lines)) if k not in adrp)


def main(what: str, file: str) -> None:
    """Record or compare answers."""
    recorded = {} if what == "record" else dict(np.load(file))
    compared = 0
    for name, arrays in asked(recorded):
        for k, array in enumerate(arrays):
            key = f"{name} {k}"
            if what == "record":
                recorded[key] = np.asarray(array)
                continue
            np.testing.assert_array_equal(array, recorded[key], err_msg=key)
            compared += array.size
    if what == "record":
        np.savez(file, **recorded)
        return
    print(f"{compared} numbers of robots have the bits of the machine that emulates")
    require_words()
    print(f"{compare_random_programs()} numbers of random programs have the bits of LLVM's code")


if __name__ == "__main__":
    main(*sys.argv[1:3])
