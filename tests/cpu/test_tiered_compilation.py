"""Loops that are compiled in a hurry first: what answers meanwhile, what takes its place, and what may go wrong."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import nothing_compiles
from robots import ROOT, own

import robodyn as rd
from robodyn.compile import keys
from robodyn.compile.llvm.jit import OPT, compile_object
from robodyn.engines.cpu import kernels, tiered_compilation
from robodyn.engines.cpu.compiler import Compiler
from robodyn.engines.cpu.native.entry import entry_text
from robodyn.engines.cpu.streaming_stores_code import module_text
from robodyn.engines.cpu.tiered_compilation import HURRIED, Trampoline
from robodyn.engines.query_table import QUERIES
from robodyn.tools.benchmark import timing


@pytest.fixture
def levels(monkeypatch, tmp_path):
    """Levels of modules that are compiled, but not of two that robots share; an empty cache, no module too small for a
    hurry."""
    found = []

    def noting(text, target, opt):
        if text not in (entry_text(), module_text(target)):
            found.append(opt)
        return compile_object(text, target, opt)

    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(keys, "compile_object", noting)
    monkeypatch.setattr(kernels, "HURRY_CHARACTERS", 0)
    yield found
    nothing_compiles()


def relays(dyn):
    """Those of an engine's kernels and of their parts."""
    kernels = list(dyn.engine._kernels.values())
    for kernel in kernels:
        kernels += getattr(kernel.keep, "kernels", ())
        kernels += [kernel.keep._kernel] if hasattr(kernel.keep, "_kernel") else []  # around another one
    return [kernel.code for kernel in kernels if isinstance(kernel.code, Trampoline)]


def tree(seed=3):
    return rd.random_tree(9, seed=seed, joints=("revolute",))


def ask(dyn, query, rows):
    rng, model = np.random.default_rng(rows), dyn.model
    leading = (rows,) if rows else ()
    q = model.random_configuration(rng, leading)
    v = rng.normal(size=(3, *leading, model.nv))
    count = len(QUERIES[query].inputs)
    arguments = (q, *v)[:count]
    found = getattr(dyn, query)(*arguments)
    return found if isinstance(found, tuple) else (found,)


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("query", "dtype", "rows"),
    [
        ("inverse_dynamics_gradient", "float32", 13),
        ("mass_matrix_inverse", "float64", 0),
        ("forward_dynamics_gradient", "float64", 13),
        pytest.param("forward_dynamics_gradient", "float32", 0, marks=pytest.mark.matrix),
        pytest.param("inverse_dynamics_hessian", "float64", 13, marks=pytest.mark.matrix),
        pytest.param("forward_dynamics_parameter_gradient", "float64", 13, marks=pytest.mark.matrix),
    ],
)
def test_better_code_takes_the_place_and_has_the_same_bits(levels, query, dtype, rows):
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled", dtype=dtype)
    before = ask(dyn, query, rows)
    assert HURRIED in levels
    nothing_compiles()
    assert relays(dyn) and all(relay.replaced for relay in relays(dyn)) and OPT in levels
    assert_same(before, ask(dyn, query, rows))


def test_what_is_around_kernels_goes_on_with_better_code(levels):
    model = rd.load_urdf(own("arm7"))
    dyn = rd.Dynamics(model, engine="cpu", threads=1)
    q = model.random_configuration(1, (25_000,))  # results larger than caches
    before = dyn.mass_matrix(q)
    (entry,) = [kernel.code for kernel in dyn.engine._kernels.values() if kernel.plain is not None]
    assert not entry._held
    nothing_compiles()
    assert len(entry._held) == 1
    np.testing.assert_array_equal(dyn.mass_matrix(q), before)


def test_the_cache_keeps_the_better_code(levels):
    wanted = ask(rd.Dynamics(tree(), engine="cpu", code="rolled"), "mass_matrix", 5)
    nothing_compiles()
    levels.clear()
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled")
    assert_same(wanted, ask(dyn, "mass_matrix", 5))
    assert not levels and not relays(dyn)


def test_what_a_process_left_unfinished_the_next_one_takes_and_finishes(levels, monkeypatch):
    monkeypatch.setattr(kernels, "later", lambda *_: None)  # as if the process ended now
    wanted = ask(rd.Dynamics(tree(), engine="cpu", code="rolled"), "bias_force", 5)
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "HURRY_CHARACTERS", 0)
    levels.clear()
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled")
    assert_same(wanted, ask(dyn, "bias_force", 5))
    nothing_compiles()
    assert all(relay.replaced for relay in relays(dyn)) and HURRIED not in levels


def test_eager_code_is_never_replaced(levels):
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled", compile="eager")
    ask(dyn, "mass_matrix", 5)
    assert HURRIED not in levels and not relays(dyn) and not tiered_compilation._WAITING


def test_small_modules_and_limited_memory_know_no_hurry(levels, monkeypatch):
    monkeypatch.setattr(kernels, "memory_is_limited", lambda: True)
    ask(rd.Dynamics(tree(), engine="cpu", code="rolled"), "inverse_dynamics", 5)
    monkeypatch.undo()
    monkeypatch.setattr(keys, "compile_object", lambda *given: levels.append(given[2]) or compile_object(*given))
    ask(rd.Dynamics(tree(4), engine="cpu", code="unrolled"), "inverse_dynamics", 5)
    assert HURRIED not in levels and not tiered_compilation._WAITING


def test_an_error_in_the_background_is_told_and_the_answer_stays(levels, monkeypatch):
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled")

    def failing(text, target, opt):
        if opt == OPT and threading.current_thread().name.startswith("robodyn: better"):
            raise rd.UnavailableError("engine 'cpu': LLVM cannot compile a program: there is a test")
        return compile_object(text, target, opt)

    told = []
    monkeypatch.setattr(keys, "compile_object", failing)
    monkeypatch.setattr(tiered_compilation.warnings, "warn", lambda message, *_, **__: told.append(message))
    wanted = ask(dyn, "inverse_dynamics", 5)
    nothing_compiles()
    assert told and "there is a test; what was compiled in a hurry goes on" in told[0]
    assert not any(relay.replaced for relay in relays(dyn))
    assert_same(wanted, ask(dyn, "inverse_dynamics", 5))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("error", [rd.UnavailableError, OSError])
def test_what_waits_behind_an_error_is_made_all_the_same(monkeypatch, error):
    """A warning is an error where the user wants it so."""
    ended, made = [], []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    monkeypatch.setattr(tiered_compilation, "HURRY_PAUSE_S", 0.05)

    class Taking:
        def replace(self, code):
            made.append(code)

    def broken():
        raise error("there is a test")

    waiting = [Taking(), Taking()]
    for each, make in zip(waiting, (broken, lambda: "better"), strict=True):
        tiered_compilation.later(each, make)
    nothing_compiles()
    assert len(ended) == 1 and made == ["better"]


@pytest.mark.parametrize("error", [None, rd.UnavailableError])
def test_kernels_that_somebody_waits_for_go_first(monkeypatch, error):
    monkeypatch.setattr(tiered_compilation, "HURRY_PAUSE_S", 0.01)
    began, made = threading.Event(), []

    class Taking:
        def replace(self, code):
            made.append(code)

    taking = Taking()
    with contextlib.suppress(rd.UnavailableError), tiered_compilation.going_first():
        with tiered_compilation.going_first():  # of another thread
            tiered_compilation.later(taking, lambda: began.set() or "better")
        assert not began.wait(0.3)
        if error is not None:
            raise error("there is a test")
    nothing_compiles()
    assert made == ["better"] and not tiered_compilation._ANSWERS


@pytest.mark.parametrize("what", ["kernel", "step"])
def test_kernels_go_first_while_they_are_made(levels, monkeypatch, what):
    meanwhile = []
    found = Compiler._cache  # asked for on the way of all of them

    def noting(self, request):
        meanwhile.append(len(tiered_compilation._ANSWERS))
        return found(self, request)

    monkeypatch.setattr(Compiler, "_cache", noting)
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled" if what == "kernel" else "auto")
    if what == "kernel":
        ask(dyn, "inverse_dynamics", 5)
    else:
        v = np.zeros(dyn.model.nv)
        dyn.rollout(dyn.model.neutral(), v, v, dt=1e-3, steps=2)
    assert meanwhile and 0 not in meanwhile and not tiered_compilation._ANSWERS


def test_nothing_is_compiled_for_an_engine_that_is_gone(levels, monkeypatch):
    monkeypatch.setattr(tiered_compilation, "HURRY_PAUSE_S", 0.5)
    ask(rd.Dynamics(tree(), engine="cpu", code="rolled"), "inverse_dynamics", 5)
    assert HURRIED in levels and tiered_compilation._WAITING
    levels.clear()
    gc.collect()
    nothing_compiles()
    assert not levels


def test_threads_call_while_code_is_replaced(levels):
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled", threads=2)
    wanted = ask(dyn, "inverse_dynamics", 513)
    wrong, stop = [], threading.Event()

    def call():
        while not stop.is_set():
            found = ask(dyn, "inverse_dynamics", 513)
            wrong.extend(k for k, (a, b) in enumerate(zip(wanted, found, strict=True)) if not np.array_equal(a, b))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    nothing_compiles()
    time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and all(relay.replaced for relay in relays(dyn))


_LIVES = """
import os, sys, time
import numpy as np
import robodyn as rd
from robodyn.engines.cpu import kernels, tiered_compilation
kernels.HURRY_CHARACTERS = 0
model = rd.random_tree(9, seed=3, joints=("revolute",))
dyn = rd.Dynamics(model, engine="cpu", code="rolled")
q, v = model.neutral(), np.ones(model.nv)
wanted = dyn.inverse_dynamics(q, v, v)
assert tiered_compilation._WAITING
if sys.argv[1] == "fork":
    tiered_compilation._ANSWERS.append("what a thread makes that the child does not have")
    child = os.fork()
    if child:
        tiered_compilation._ANSWERS.clear()
    end = time.monotonic() + 60
    while tiered_compilation._WAITING and time.monotonic() < end:
        time.sleep(0.02)
    relay = next(iter(dyn.engine._kernels.values())).code
    good = relay.replaced and (wanted == dyn.inverse_dynamics(q, v, v)).all()
    if not child:
        os._exit(0 if good else 7)
    assert good and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
elif sys.argv[1] == "compiling":
    time.sleep(tiered_compilation.HURRY_PAUSE_S + 0.01)
print("end")
"""


@pytest.mark.parametrize("what", ["at once", "compiling", "fork"])
@pytest.mark.matrix
def test_processes_end_and_fork_meanwhile(what, tmp_path):
    if what == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    environment = {**os.environ, "ROBODYN_CACHE_DIR": str(tmp_path / "objects"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _LIVES, what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


BUILT_INS = """
import time
import numpy as np
import robodyn as rd
from robodyn.tools.benchmark import timing
from robodyn.compile import keys
from robodyn.engines.cpu import tiered_compilation
from robodyn.engines.cpu.native import entry

levels, compile_object = [], keys.compile_object

def noting(text, target, opt):
    if text == entry.entry_text():
        levels.append(opt)
    return compile_object(text, target, opt)

keys.compile_object = noting
dyn = rd.Dynamics(rd.random_tree(5, seed=3), engine="cpu")
q, v = dyn.model.random_configuration(3), np.ones((2, dyn.model.nv))
ask = dyn.inverse_dynamics
first = ask(q, *v)
ask(q, *v)
begun, methods = list(levels), [each.__self__[1] for each in (ask, dyn.bias_force)]
before = [bytearray(each) for each in methods]  # copies
end = time.monotonic() + 60.0
while (tiered_compilation._WAITING or tiered_compilation._WORKING) and time.monotonic() < end:
    time.sleep(0.01)
changed = [each != old for each, old in zip(methods, before)]
code = [entry._MethodDef.from_buffer_copy(each.__self__[1]).function for each in (ask, dyn.gravity_force)]
same = ask(q, *v).tobytes() == first.tobytes()
print(begun, levels, changed, same, code[0] == code[1])
"""


def test_built_in_functions_go_on_with_better_code(tmp_path):
    environment = {**os.environ, "ROBODYN_CACHE_DIR": str(tmp_path / "objects")}

    def said():
        done = subprocess.run([sys.executable, "-c", BUILT_INS], env=environment, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return done.stdout.split("\n")[0]

    assert said() == "[0] [0, 1] [True, True] True True"
    assert said() == "[] [] [False, False] True True"  # the cache has the better code


def test_measurements_wait_for_the_better_code(levels):
    dyn = rd.Dynamics(tree(), engine="cpu", code="rolled")
    ask(dyn, "mass_matrix", 5)
    assert relays(dyn) and not any(relay.replaced for relay in relays(dyn))
    timing.settle()
    assert all(relay.replaced for relay in relays(dyn)) and OPT in levels
    timing.settle()  # nothing is left
