"""Runs the command in this process, and robots for it."""

from __future__ import annotations

import contextlib
import io
import json
import os
from typing import Any
from unittest import mock

import numpy as np

import robodyn as rd
from robodyn.tools.cli import app as cli

QUERIES = {
    "id": ("inverse_dynamics", ("q", "qd", "qdd"), ("tau",)),
    "fd": ("forward_dynamics", ("q", "qd", "tau"), ("qdd",)),
    "gradient --of id": ("inverse_dynamics_gradient", ("q", "qd", "qdd"), ("dtau_dq", "dtau_dqd")),
    "gradient --of fd": ("forward_dynamics_gradient", ("q", "qd", "tau"), ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")),
}


def run(*arguments: Any, columns: int = 200) -> tuple[int, str, str]:
    """Run the command on a screen of n columns: (exit status, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(columns), "ROBODYN_DEBUG": ""}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        os.environ.pop("FORCE_COLOR", None)
        status = cli.run([str(each) for each in arguments])
    assert "Traceback" not in out.getvalue() + err.getvalue()
    return status, out.getvalue(), err.getvalue()


def refused(arguments: list[Any], *parts: str, status: int = cli.USER_ERROR) -> None:
    """The command ends with this status, prints nothing, and says in one line on stderr all of `parts`."""
    got, out, err = run(*arguments)
    assert got == status, err
    assert out == ""
    assert err.startswith("robodyn: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for part in parts:
        assert part in err, f"{part!r} is not in {err}"


def answer(*arguments: Any) -> dict[str, Any]:
    """The JSON that the command prints, after it went well."""
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def library(name, model, states, **options):
    """What the library says: results by name."""
    method, inputs, names = QUERIES[name]
    results = getattr(rd.Dynamics(model, **options), method)(*(states[i] for i in inputs))
    return dict(zip(names, results if len(names) > 1 else (results,), strict=True))


def same(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(wanted).max(initial=0)))


def values(entries):
    return {name: np.array(entry["values"]).reshape(entry["shape"]) for name, entry in entries.items()}


def chain(n):
    """A robot that is one long chain, as URDF."""
    inertial = '<inertial><mass value="1"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>'
    links = "".join(f'<link name="link{i}">{inertial}</link>' for i in range(n + 1))
    joints = "".join(
        f'<joint name="joint{i}" type="continuous"><parent link="link{i}"/><child link="link{i + 1}"/>'
        '<axis xyz="0 1 0"/></joint>'
        for i in range(n)
    )
    return f'<robot name="chain">{links}{joints}</robot>'
