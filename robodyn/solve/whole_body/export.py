"""A whole-body controller as C, for controllers without Python: the traced terms, and the loops that solve."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.compile.c.code import Function, c_source, comment
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.cuda import Module
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.version import __version__
from robodyn.solve.whole_body.code import RESIDUALS, kernel, numbers_of_state
from robodyn.solve.whole_body.elimination import Robot
from robodyn.solve.whole_body.terms import Layout, terms_task

_NUMBERS_OF_A_LINE = 6


def c_code(
    model: Model, layout: Layout, constants: dict[str, Array], robot: Robot, tables: dict[str, Array], prefix: str
) -> str:
    """The text of a C file with one function, named `prefix`.

    Args:
        constants: inputs of the terms that are the same for all calls.
        robot: sizes and tolerances; tables: the arrays that it points to, by their names.
    """  # fmt: skip
    program = trace(model, terms_task(model, layout))
    terms = Function(f"{prefix}_terms", program, ["Dynamics, feet and tasks in a state."])
    sizes = {"NQ": model.nq, "NV": model.nv, "TARGETS": layout.targets, "FEET": len(layout.feet)}
    about = [f"Whole-body control of {model.name}, by robodyn {__version__}.", "Compile with -fno-strict-aliasing."]
    double = Number("double")
    module = Module(dict.fromkeys(("Scalar", "Vector", "Loose", "LooseScalar"), double), prefix=f"{prefix}_")
    module.export(kernel, "loops")
    parts = [
        c_source([terms], prefix=prefix, sizes=sizes, about=about),
        "#include <stdbool.h>\n",
        module.text(),
        *(_array("double", f"{prefix}_{each}", array.ravel().tolist()) for each, array in constants.items()),
        *(_array(_kind(array), f"{prefix}_{each}", array.ravel().tolist()) for each, array in tables.items()),
        _robot(prefix, robot, tables),
        _function(prefix, model, layout, robot, [port.name for port in program.inputs]),
    ]
    return "\n".join(parts)


def _kind(array: Array) -> str:
    return "double" if array.dtype.kind == "f" else "long long"


def _array(kind: str, name: str, numbers: list[Any]) -> str:
    """A constant array; one without numbers has one, which nobody reads."""
    words = [_number(each) for each in numbers] or ["0"]
    rows = [", ".join(words[k : k + _NUMBERS_OF_A_LINE]) for k in range(0, len(words), _NUMBERS_OF_A_LINE)]
    body = ",\n    ".join(rows)
    return f"static const {kind} {name}[{len(words)}] = {{\n    {body}}};\n"


def _number(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(float(value)) if np.isfinite(value) else "INFINITY"


def _robot(prefix: str, robot: Robot, tables: dict[str, Array]) -> str:
    words = []
    for field, *_ in Robot._fields_:
        if field in tables:
            words.append(f"({_kind(tables[field])}*){prefix}_{field}")
        else:
            words.append(_number(getattr(robot, field)))
    body = ",\n    ".join(words)
    return f"static const Robot {prefix}_robot = {{\n    {body}}};\n"


def _function(prefix: str, model: Model, layout: Layout, robot: Robot, inputs: list[str]) -> str:
    """The function that a controller calls."""
    feet, targets = len(layout.feet), layout.targets
    numbers = numbers_of_state(robot, max(layout.rows, default=0), 1)[0]
    lines = [
        "Torques tau, accelerations qdd and forces f of feet, as of robodyn.WholeBodyControl. Returns 0, or 1 if there",
        "are none, 2 after too many steps, 3 for NaN or infinity; results are NaN then. targets: poses (4, 4), row",
        "by row, one after another. active: 1 for feet that stand, 0 for others. Memory is on the stack alone,",
        f"{8 * (numbers + layout.size) // 1024 + 1} kB, and the steps of the solver are bounded.",
    ]
    arguments = [f"const double q[{model.nq}]", f"const double qd[{model.nv}]"]
    arguments += [f"const double targets[{16 * targets}]"] if targets else []
    arguments += [f"const unsigned char active[{feet}]"] if feet else []
    arguments += [f"double tau[{model.nv}]", f"double qdd[{model.nv}]"]
    arguments += [f"double f[{3 * feet}]"] if feet else []
    own = {"q": "q", "qd": "qd", "goals": "targets"}
    given = ", ".join(own.get(each, f"{prefix}_{each}") for each in inputs)
    signature = ",\n    ".join(arguments)
    stands = f"    for (int k = 0; k < {feet}; k++) on[k] = active[k] ? 1.0 : 0.0;\n" if feet else ""
    return f"""{comment(lines)}int {prefix}(
    {signature})
{{
    double terms[{layout.size}], on[{feet + 1}], residuals[{len(RESIDUALS)}], memory[{numbers}];
    long long ends[2];
    Argument table[9] = {{
        {{(char*)terms, 0}}, {{(char*)on, 0}}, {{(char*)tau, 0}}, {{(char*)qdd, 0}},
        {{(char*){"f" if feet else "on"}, 0}},
        {{(char*)ends, 0}}, {{(char*)residuals, 0}}, {{(char*)&{prefix}_robot, 0}}, {{0, 0}}}};
{stands}    {prefix}_terms({given}, terms);
    {prefix}_loops(table, 0, 1, (char*)memory);
    return (int)ends[0];
}}
"""
