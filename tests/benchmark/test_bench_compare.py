"""The comparison with other libraries: what differs has no time, and what crashes, hangs or is absent is named."""

from __future__ import annotations

import json
import os
import stat
import time

import numpy as np
import pytest

from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.contenders import Prepared
from tests.bench import records
from tests.bench.compare import suite, worker
from tests.bench.compare.work import Job, Robot
from tests.bench.runner import Run


def measured(*words, longest=60.0, **options):
    return suite.measure(Run(words, Settings(seconds=0.0), longest), **options)


def interpreter(path, text):
    """An executable in place of Python, as the interpreter of a library."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.matrix
def test_libraries_do_the_same_work():
    pytest.importorskip("pinocchio")
    for _ in range(5):
        found = measured("arm7", "o, inverse_dynamics")  # of Pinocchio and MuJoCo, and the gradient
        at = {(case.library, case.query, case.batch): case for case in found.cases}
        # One call each: where another program takes the processor meanwhile, that of one joint may take longer.
        if not any("costs as much" in case.problem for case in found.cases):
            break
    assert {library for library, _, _ in at} == {"pinocchio", "mujoco"}
    for batch in (1, 4096):
        case = at["pinocchio", "inverse_dynamics", batch]
        assert not case.problem and case.best_ns > 0.0 and case.off_by < 1e-12
    assert at["pinocchio", "inverse_dynamics_gradient", 4096].remark == "C++, estimated"
    assert "finite differences" in at["mujoco", "inverse_dynamics_gradient", 1].problem
    text = suite.PAGE.markdown(found, {"commit": "none"}, {})
    assert "Pinocchio" in text and "rigidax: not measured" in text and "WRONG" not in text.split("##", 1)[1]


@pytest.mark.matrix
def test_every_query_of_ours_is_measured_and_compiled():
    found = measured("arm7, robodyn")
    assert len(found.cases) == 14 and not [case.problem for case in found.cases if case.problem]
    assert all(case.compile_s > 0.0 and case.off_by < 1e-7 for case in found.cases)


def test_what_others_take_of_the_processor_is_no_time_of_a_library():
    """Sleep stands for other programs: a call is away from the processor, and its time goes on by the clock alone."""
    wanted = np.ones((1, 3))
    job = Job(Prepared(lambda: time.sleep(0.05), lambda: (wanted,), 1), (wanted,))
    found = worker.timed(job, 0.0, "mass_matrix")
    assert 0.0 < found["best_ns"] < 0.025e9


def test_what_differs_has_no_time():
    wanted = np.arange(6.0).reshape(2, 3)
    runs = []
    for answers, problem in (
        (wanted, ""),
        (np.tile(wanted, (3, 1)), ""),
        (wanted + 1e-3, "WRONG: differs by 0.0002"),
        (wanted[:, :2], "WRONG: differs by inf"),
        (np.where(wanted == 3.0, np.nan, wanted), "WRONG: differs by inf"),
        (wanted[:0], "WRONG: differs by inf"),
    ):
        job = Job(Prepared(lambda: runs.append(1), lambda answers=answers: (answers,), 2), (wanted,))
        found = worker.timed(job, 0.0, "mass_matrix")
        assert found.get("problem", "") == problem and ("best_ns" in found) == (not problem)
        json.dumps(found, allow_nan=False)


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for an interpreter")
@pytest.mark.parametrize(
    "script, problem",
    [
        ("echo 'the module is broken' >&2; kill -SEGV $$", "ended with status -11: the module is broken"),
        ("exit 3", "ended with status 3"),
        ("kill -ALRM $$", "took more than 60 s"),
        ("""echo '{"refused": "not installed"}'""", "not installed"),
        # Its first case is answered; then it dies each time that it is asked for the rest.
        ("""echo '{"name": "Odd 1"}'; echo '{"case": "x", "problem": "no query"}'; exit 4""", "ended with status 4"),
    ],
    ids=["crashes", "ends", "hangs", "refuses", "dies on the way"],
)
def test_a_library_that_fails_is_named_and_not_the_end(script, problem, monkeypatch, tmp_path):
    monkeypatch.setenv("ROBODYN_COMPARE_FRAX", interpreter(tmp_path / "python", script))
    found = measured("arm7, frax")
    assert len(found.cases) == 14 and all(case.problem and case.best_ns is None for case in found.cases)
    assert sum(problem in case.problem for case in found.cases) >= 3
    assert found.cases[-1].problem.startswith("left out after 3") == ("Odd" in script)
    assert f"[1] {found.cases[0].problem}" in suite.PAGE.markdown(found, {}, {})


def test_time_runs_out():
    found = measured("arm7, robodyn", total=0.0)
    assert {case.problem for case in found.cases} == {"left out: no time was left"}


def test_a_page_is_measured_in_pieces(tmp_path):
    path = tmp_path / "compare.json"
    first = suite.Results(
        [
            suite.Case("arm7", "frax", "mass_matrix", 1, best_ns=5.0),
            suite.Case("arm7", "mjx", "rollout", 1, best_ns=7.0),
        ],
        {"frax": "frax 1", "mjx": "mjx 1"},
        {"frax": "0.1", "mjx": "0.2"},
    )
    records.save(path, {"commit": "a"}, first)
    second = suite.Results(
        [
            suite.Case("arm7", "robodyn", "mass_matrix", 1, best_ns=1.0),
            suite.Case("arm7", "frax", "mass_matrix", 1, best_ns=6.0),
            suite.Case("arm7", "mjx", "rollout", 1, problem="left out: no time was left"),
        ],
        {"robodyn": "ours", "frax": "frax 2"},
        {"robodyn": "0.3", "frax": "0.4", "mjx": "0.5"},
    )
    whole = suite.merge(second, records.load(path, suite.Results)[1], {}, {})
    assert [(case.library, case.best_ns) for case in whole.cases] == [("robodyn", 1.0), ("frax", 6.0), ("mjx", 7.0)]
    assert whole.libraries == {"frax": "frax 2", "mjx": "mjx 1", "robodyn": "ours"}


def test_truth_goes_into_other_conventions():
    """Answers in MuJoCo's convention are those of its own equations: power is the same, and q is another."""
    import robodyn as rd

    robot = Robot("humanoid")
    way = rd.converter(robot.model, "mujoco")
    q, qd = robot.states["q"], robot.states["qd"]
    (tau,), (theirs,) = robot.truth("inverse_dynamics"), robot.wanted(way, "inverse_dynamics")
    np.testing.assert_allclose((way.v_to(q, qd) * theirs).sum(axis=1), (qd * tau).sum(axis=1), rtol=1e-9, atol=1e-9)
    assert not np.allclose(tau, theirs)
