"""The CPU engine beside its arithmetic: when it compiles, where it cannot, threads, forks, processes, memory."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from conftest import nothing_compiles
from cpu_queries import answers, beyond, difference, states_of

import robodyn as rd
from robodyn.compile import keys
from robodyn.compile.cache import FOLDER_VARIABLE
from robodyn.compile.llvm import jit
from robodyn.engines.cpu import backends
from robodyn.engines.cpu import engine as engines
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.threads import pool
from robodyn.engines.query_table import QUERIES
from robodyn.internals import tuning

PATIENCE = 300.0  # seconds that nothing here comes near unless something hangs
CODES = ["unrolled", "rolled"]


@pytest.fixture(scope="module")
def model():
    return rd.random_tree(3, seed=3, joints=("spherical", "revolute", "prismatic"))


@pytest.fixture
def no_cache(monkeypatch):
    """Everything is compiled anew."""
    monkeypatch.setenv(FOLDER_VARIABLE, "off")


def run(code: str, **environment: str) -> str:
    """What a program of its own prints; warnings are errors in it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


# When it compiles.


def test_background_answers_before_the_code_is_there(model, no_cache):
    dyn = rd.Dynamics(model, engine="cpu", compile="background")
    s, answered, compiled = states_of(model, (9,), seed=1), threading.Event(), dyn.engine.compiler.kernel

    def late(*given, **options):
        assert answered.wait(PATIENCE)
        return compiled(*given, **options)

    dyn.engine.compiler.kernel = late
    reference = rd.Dynamics(model, engine="reference").inverse_dynamics(s.q, s.qd, s.qdd)
    first = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    assert (first == reference).all() and not dyn.engine._kernels
    answered.set()
    for thread in [*dyn.engine._compiling.values()]:
        thread.join(PATIENCE)
    assert len(dyn.engine._kernels) == 1
    later = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    assert difference(later, first) < 1e-13
    assert (later == rd.Dynamics(model, engine="cpu").inverse_dynamics(s.q, s.qd, s.qdd)).all()
    assert "inverse_dynamics" in vars(dyn)


@pytest.mark.parametrize("code", CODES)
def test_background_takes_what_the_cache_has(code, model, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    s = states_of(model, (9,), seed=1)
    wanted = rd.Dynamics(model, engine="cpu", code=code).mass_matrix(s.q)
    dyn = rd.Dynamics(model, engine="cpu", code=code, compile="background")
    assert (dyn.mass_matrix(s.q) == wanted).all() and not dyn.engine._compiling


def test_eager_compiles_before_the_first_call(model, no_cache, monkeypatch):
    dyn = rd.Dynamics(model, engine="cpu", compile="eager", code="unrolled")
    s = states_of(model, (), seed=2)
    monkeypatch.setattr(keys, "compile_object", lambda *_: pytest.fail("compiled at a call"))
    for name in ("inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force"):
        inputs = QUERIES[name].plain
        assert np.isfinite(getattr(dyn, name)(*(getattr(s, each) for each in inputs))).all()


@pytest.mark.parametrize("code", CODES)
def test_generated_code_can_be_looked_at(code, model):
    program = rd.Dynamics(model, engine="cpu", code=code).program("forward_dynamics")
    assert program.mode == code and program.operations > 100
    assert "define void @kernel(ptr" in program.ir and "kernel:" in program.assembly
    if code == "unrolled":
        assert sum(program.counts.values()) >= program.operations and program.text.count("\n") > 100
    else:
        with pytest.raises(rd.UnavailableError, match="rolled code is not one graph"):
            _ = program.text


_DIGESTS = """
import hashlib, sys
import numpy as np
import robodyn as rd
kinds = ("universal", "spherical", "helical", "planar", "prismatic", "continuous")
model = rd.random_tree(7, seed=11, joints=kinds, armature=True, mimic=0.5)
free = rd.random_tree(6, seed=5, joints=kinds)
for code in ("unrolled", "rolled"):
    for name in ("inverse_dynamics", "mass_matrix", "coriolis_matrix", "forward_dynamics"):
        robot = free if name == "forward_dynamics" else model
        made = rd.Dynamics(robot, engine="cpu", code=code).program(name)
        print(name, code, hashlib.sha256(made.ir.encode()).hexdigest(), made.operations)
"""


@pytest.mark.matrix
def test_every_process_generates_the_same_code():
    told = {run(_DIGESTS, PYTHONHASHSEED=seed) for seed in ("0", "1", "2")}
    assert len(told) == 1 and told.pop().count("\n") == 8


# Where it cannot compile.


def test_without_llvm_the_reference_engine_answers(model, no_cache, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such target")

    nothing_compiles()
    monkeypatch.setattr(jit.llvm, "parse_assembly", fail)
    monkeypatch.setattr(backends, "_DRIVERS", {})
    s = states_of(model, (5,), seed=3)
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(s.q)
    with pytest.raises(rd.UnavailableError, match="LLVM cannot compile a program: no such target"):
        rd.Dynamics(model, engine="cpu").mass_matrix(s.q)
    for code in ("auto", *CODES):
        dyn = rd.Dynamics(model, engine="auto", code=code)
        with pytest.warns(RuntimeWarning, match="no such target; the reference engine answers instead") as heard:
            assert (dyn.mass_matrix(s.q) == wanted).all()
        assert len(heard) == 1
        assert (dyn.mass_matrix(s.q) == wanted).all()  # without another word


@pytest.mark.parametrize("engine", ["auto", "cpu"])
def test_without_llvm_in_the_background(engine, model, no_cache, monkeypatch):
    """The thread fails in silence; the next call raises, or leaves it to the reference engine."""

    def fail(*_):
        raise RuntimeError("no such target")

    nothing_compiles()
    monkeypatch.setattr(jit.llvm, "parse_assembly", fail)
    monkeypatch.setattr(backends, "_DRIVERS", {})
    s = states_of(model, (5,), seed=3)
    dyn = rd.Dynamics(model, engine=engine, compile="background")
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(s.q)
    assert (dyn.mass_matrix(s.q) == wanted).all()
    for thread in [*dyn.engine._compiling.values()]:
        thread.join(PATIENCE)
    if engine == "cpu":
        with pytest.raises(rd.UnavailableError, match="LLVM cannot compile a program: no such target"):
            dyn.mass_matrix(s.q)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # who asked for the background may hear of it or not
        assert (dyn.mass_matrix(s.q) == wanted).all()
    assert (dyn.mass_matrix(s.q) == wanted).all()


def test_entries_that_do_not_compile_are_done_without(model, monkeypatch):
    """What only makes calls quicker takes no answer away."""
    dyn, s = rd.Dynamics(model, engine="cpu"), states_of(model, (5,), seed=3)

    def fail(*_, **__):
        raise rd.UnavailableError("engine 'cpu': LLVM cannot compile a program")

    monkeypatch.setattr(engines, "Entry", fail)
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(s.q)
    for _ in range(2):
        assert difference(dyn.mass_matrix(s.q), wanted) < 1e-13


@pytest.mark.parametrize("code", CODES)
def test_a_pool_that_does_not_compile_is_one_of_pythons_threads(code, model, monkeypatch):
    def fail(*_, **__):
        raise rd.UnavailableError("engine 'cpu': LLVM cannot compile a program")

    s = states_of(model, (3001,), seed=3)
    wanted = rd.Dynamics(model, engine="cpu", code=code, threads=1).bias_force(s.q, s.qd)
    monkeypatch.setattr(pool, "_FUNCTIONS", {})
    monkeypatch.setattr(pool, "_SHARED", {})
    monkeypatch.setattr(pool, "load_once", fail)
    dyn = rd.Dynamics(model, engine="cpu", code=code, threads=3)
    for _ in range(2):
        assert (dyn.bias_force(s.q, s.qd) == wanted).all()
    assert pool.shared_pool(3).parallel == 0


_WITHOUT_LLVMLITE = """
import sys, warnings
sys.modules["llvmlite"] = None
import robodyn as rd
model = rd.auto_tree(3)
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    assert rd.Dynamics(model).engine.name == "reference"
print(len(heard), heard[0].message)
try:
    rd.Dynamics(model, engine="cpu")
except rd.UnavailableError as error:
    print(error)
"""


def test_without_llvmlite():
    told = run(_WITHOUT_LLVMLITE).splitlines()
    assert told[0].startswith("1 engine 'cpu' does not run here, 'reference' does: ")
    assert told[1].startswith("engine: 'cpu' does not run here: ")


_AT_A_LEVEL = """
import numpy as np
import robodyn as rd
model = rd.random_tree(4, seed=1, joints=("spherical", "revolute"), base="floating")
q, (qd, qdd) = model.random_configuration(0, (33,)), np.random.default_rng(0).standard_normal((2, 33, model.nv))
dyn, reference = rd.Dynamics(model, engine="cpu"), rd.Dynamics(model, engine="reference")
for _ in range(2):
    tau = dyn.inverse_dynamics(q, qd, qdd)
    assert np.abs(tau - reference.inverse_dynamics(q, qd, qdd)).max() < 1e-12 * np.abs(tau).max()
    assert np.abs(dyn.forward_dynamics(q, qd, tau) - qdd).max() < 1e-9
    assert (dyn.inverse_dynamics(q[4], qd[4], qdd[4]) == tau[4]).all()
assembly = dyn.program("mass_matrix").assembly
print(dyn.engine.target.level, "zmm" in assembly, "ymm" in assembly)
"""


@pytest.mark.skipif(jit.llvm.get_process_triple().split("-")[0] != "x86_64", reason="levels of x86")
def test_a_processor_without_avx():
    assert run(_AT_A_LEVEL, ROBODYN_CPU_LEVEL="sse2") == "sse2 False False\n"


_NO_SUCH_LEVEL = """
import robodyn as rd
try:
    rd.Dynamics(rd.auto_tree(2), engine="cpu")
except rd.UnavailableError as error:
    print(error)
"""


def test_a_level_that_does_not_exist_is_named():
    assert "ROBODYN_CPU_LEVEL: got 'mmx'; this processor has" in run(_NO_SUCH_LEVEL, ROBODYN_CPU_LEVEL="mmx")


@pytest.mark.parametrize("folder", ["off", "", "a file", "below a file"])
def test_without_a_folder_for_machine_code(folder, model, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    places = {"a file": str(tmp_path / "file"), "below a file": str(tmp_path / "file" / "objects")}
    monkeypatch.setenv(FOLDER_VARIABLE, places.get(folder, folder))
    s = states_of(model, (5,), seed=3)
    wanted = rd.Dynamics(model, engine="reference").mass_matrix(s.q)
    assert difference(rd.Dynamics(model, engine="cpu").mass_matrix(s.q), wanted) < 1e-13


# Memory.


@pytest.mark.matrix
def test_workspaces_too_large_for_vectors_hold_one_state(model, monkeypatch):
    s = states_of(model, (9,), seed=4)
    wide, narrow = (rd.Dynamics(model, engine="cpu", code="rolled") for _ in range(2))
    wanted = answers(wide, s)
    monkeypatch.setattr(tuning, "MAX_WIDE_WORKSPACE", 0)
    assert beyond(answers(narrow, s), wanted, "float64") == {}
    made = [(kernel.plain or kernel).keep for kernel in narrow.engine._kernels.values()]
    rolled = [each.module.kind.width for each in made if isinstance(each, RolledProgram)]
    assert len(rolled) > 20 and set(rolled) == {1}
    stages = [part.keep for each in made if not isinstance(each, RolledProgram) for part in each.kernels]
    assert {part.module.kind.width for part in stages if isinstance(part, RolledProgram)} == {1}


def test_loops_whose_results_outgrow_a_cache_run_state_by_state(monkeypatch):
    """To the same bits; what has small results stays as it is."""
    model = rd.random_tree(6, seed=2)
    s = states_of(model, (9,), seed=4)
    found = []
    for most in (tuning.MAX_WIDE_RESULTS, model.nv**2 * 16 - 1):
        monkeypatch.setattr(tuning, "MAX_WIDE_RESULTS", most)
        dyn = rd.Dynamics(model, engine="cpu", code="rolled")
        answers = dyn.mass_matrix(s.q), dyn.inverse_dynamics(s.q, s.qd, s.qdd)
        found.append(
            (answers, [(kernel.plain or kernel).keep.module.kind.width for kernel in dyn.engine._kernels.values()])
        )
    (wanted, (matrix, forces)), (got, widths) = found
    assert matrix == forces > 1 and widths == [1, forces]
    assert all(map(np.array_equal, got, wanted))


def test_too_little_memory_is_an_error_of_ours(model):
    dyn, s = rd.Dynamics(model, engine="cpu", code="rolled"), states_of(model, (9,), seed=4)
    dyn.mass_matrix(s.q)
    for kernel in dyn.engine._kernels.values():
        kernel.workspace_bytes = 1 << 60
    dyn.check = None  # which lets go of quick calls: they have their memory
    with pytest.raises(rd.UnavailableError, match=rf"needs {1 << 60} bytes of scratch memory; there is not that much"):
        dyn.mass_matrix(s.q)


@pytest.mark.matrix
def test_kept_workspaces_do_not_grow_with_calls(model):
    dyn, s = rd.Dynamics(model, engine="cpu", code="rolled", threads=1), states_of(model, (9,), seed=4)
    for _ in range(10):
        answers(dyn, s)
    assert max(len(kept) for kept in dyn.engine._workspaces.values()) <= 2


_DISCARDED = """
import ctypes, gc, sys, time
import numpy as np
import robodyn as rd
from robodyn.engines.cpu import tiered_compilation

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd".split()]
    _fields_ += [(name, ctypes.c_size_t) for name in "usmblks fsmblks uordblks fordblks keepcost".split()]

heap = ctypes.CDLL(None).mallinfo2
heap.restype = Heap

def used():
    gc.collect()
    while tiered_compilation._WAITING or tiered_compilation._WORKING:  # what a thread compiles just now is no leak
        time.sleep(0.02)
    found = heap()
    return found.uordblks + found.hblkhd

def ask(seed):
    model = rd.random_tree(1, seed=seed)
    dyn, q = rd.Dynamics(model), np.zeros((4, model.nq))
    dyn.gravity_force(q)
    dyn.gravity_force(q[0])

first, all = map(int, sys.argv[1:])
for seed in range(first):
    ask(seed)
before = used()
for seed in range(first, all):
    ask(seed)
print(used() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not tell what is in use")
@pytest.mark.parametrize(
    ("first", "all", "most"),
    [
        pytest.param(64, 320, 1_200_000, marks=pytest.mark.matrix),
        pytest.param(200, 2000, 2_000_000, marks=pytest.mark.nightly),
    ],
)
def test_nothing_stays_of_robots_that_are_discarded(first, all, most):
    """LLVM kept 10 KB of each one's linked code, and 27 KB of what it was compiled from. What another thread compiles
    moves some 700 KB to and fro."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _DISCARDED, str(first), str(all)],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 4,
        env={**os.environ, FOLDER_VARIABLE: "off"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < most


# Threads and processes.


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("compile", ["lazy", "background"])
@pytest.mark.some(of=4, rest="matrix")
def test_eight_threads_use_a_dynamics_while_it_compiles(compile, code, model, no_cache):
    dyn, s = rd.Dynamics(model, engine="cpu", compile=compile, code=code, threads=2), states_of(model, (600,), seed=5)
    wanted = rd.Dynamics(model, engine="reference").inverse_dynamics(s.q, s.qd, s.qdd)
    barrier, problems = threading.Barrier(8), []

    def work(number: int) -> None:
        barrier.wait(PATIENCE)
        for k in range(30):
            row = (number * 30 + k) % 600
            single = dyn.inverse_dynamics(s.q[row], s.qd[row], s.qdd[row])
            if (
                difference(single, wanted[row]) > 1e-12
                or difference(dyn.inverse_dynamics(s.q, s.qd, s.qdd), wanted) > 1e-12
            ):
                problems.append((number, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads) and problems == []
    for thread in [*dyn.engine._compiling.values()]:
        thread.join(PATIENCE)


_FORK = """
import os, sys, threading, time
import numpy as np
import robodyn as rd
model = rd.random_tree(4, seed=1, joints=("spherical", "revolute"), base="floating")
q, qd = model.random_configuration(0, (4000,)), np.ones((4000, model.nv))
when, code = sys.argv[1:]
dyn = rd.Dynamics(model, engine="cpu", threads=2, code=code, compile="background" if when == "compiling" else "lazy")
reference = rd.Dynamics(model, engine="reference").bias_force(q, qd)

def right(dyn):
    return all(np.abs(dyn.bias_force(q, qd) - reference).max() < 1e-10 for _ in range(3))

if when != "before":
    assert right(dyn)
if when == "working":
    def work():
        while True:
            dyn.bias_force(q, qd)
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)
child = os.fork()
if child == 0:
    new = rd.Dynamics(model, engine="cpu", threads=2, code=code, dtype="float64")
    os._exit(0 if right(dyn) and right(new) and right(dyn) else 3)
end = time.monotonic() + 120
while time.monotonic() < end:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.01)
else:
    os.kill(child, 9)
    sys.exit("the child hangs")
assert right(dyn)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("when", ["before", "after", "working", "compiling"])
@pytest.mark.some(of=8, rest="matrix")
def test_forks(when, code):
    """From Python 3.12 on a fork of several threads warns, which is beside the point."""
    program = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", _FORK, when, code]
    environment = {**os.environ, **({FOLDER_VARIABLE: "off"} if when == "compiling" else {})}
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


_EXIT = """
import threading, time
import numpy as np
import robodyn as rd
from robodyn.engines.query_table import QUERIES
model = rd.random_tree(4, seed=1, joints=("spherical", "revolute"), base="floating")
q, qd = model.random_configuration(0, (20000,)), np.ones((20000, model.nv))
dyn = rd.Dynamics(model, engine="cpu", threads=2, compile=COMPILE)
inside = threading.Event()

def work():
    while True:
        dyn.bias_force(q[:SIZE], qd[:SIZE])
        inside.set()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
assert inside.wait(100)
print("done")
"""


@pytest.mark.parametrize("rows", [1, 300, 20000])
@pytest.mark.parametrize("compile", ["lazy", "background"])
@pytest.mark.some(of=3, rest="matrix")
def test_the_interpreter_ends_with_threads_inside(compile, rows):
    cache = {FOLDER_VARIABLE: "off"} if compile == "background" else {}
    assert run(_EXIT.replace("SIZE", str(rows)).replace("COMPILE", repr(compile)), **cache) == "done\n"


@pytest.mark.parametrize("code", ["unrolled", pytest.param("rolled", marks=pytest.mark.matrix)])
def test_a_pickled_dynamics_answers_alike(code, model):
    dyn, s = rd.Dynamics(model, engine="cpu", code=code, threads=2, check=False), states_of(model, (33,), seed=6)
    wanted = answers(dyn, s)
    again = pickle.loads(pickle.dumps(dyn))
    assert again.engine.compiler.mode == code
    for _ in range(2):
        assert all((got == wanted[name]).all() for name, got in answers(again, s).items())


@pytest.mark.parametrize("threads", [1, 2, 5, None])
@pytest.mark.parametrize("code", CODES)
def test_threads_share_batches_to_the_bit(code, threads, model):
    s = states_of(model, (3001,), seed=7)
    alone = rd.Dynamics(model, engine="cpu", code=code, threads=1)
    dyn = rd.Dynamics(model, engine="cpu", code=code, threads=threads)
    for name in ("inverse_dynamics", "mass_matrix"):
        inputs = [getattr(s, each) for each in QUERIES[name].plain]
        wanted = getattr(alone, name)(*inputs)
        for _ in range(3):
            assert (getattr(dyn, name)(*inputs) == wanted).all()
