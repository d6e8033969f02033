"""Keys of the cache: no code is found that its sources would not give, and none is compiled that is there."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_queries import difference, states_of
from robots import own

import robodyn as rd
from robodyn.algorithms import kinematics
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.energy import KINETIC_ENERGY, POTENTIAL_ENERGY
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import Chain, Solution, Solve, Stage
from robodyn.compile import keys
from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache
from robodyn.compile.gc_pause import no_collection
from robodyn.compile.keys import Linked, compiled, link_key, object_key, source_digests
from robodyn.compile.llvm.jit import Code
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loop_plan import Traits
from robodyn.core.joints import KINDS
from robodyn.engines.cpu.backends import BACKEND_VARIABLE, LLVM, X86, backend_of
from robodyn.engines.cpu.fingerprint import fingerprint
from robodyn.engines.query_table import QUERIES
from robodyn.sweeps import DofOutput

PACKAGE = Path(rd.__file__).parent
PATIENCE = 300.0
COMPILER = "compile/llvm/jit.py"


@pytest.fixture
def package(tmp_path):
    """A copy of the package that may be edited."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / "robodyn", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def fresh(monkeypatch):
    """Forgets what keys know of the package, as a new process does; called with a folder, it is the package's."""
    monkeypatch.setattr("robodyn.internals.package.IMPORTED_AT", math.inf)
    known = (keys._stamps, keys._sources, keys._generator, keys._compiler)

    def forget(folder=None):
        if folder is not None:
            monkeypatch.setattr(keys, "_PACKAGE", folder)
        for each in known:
            each.cache_clear()

    forget()
    yield forget
    forget()


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# What keys are made of.


def imported(module, package):
    """Files of the modules that one imports, anywhere in its text, and of the packages around them."""
    found = set()
    for node in ast.walk(ast.parse((package / module).read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "robodyn":
                found |= {"/".join((*parts[1:k], "__init__.py")) for k in range(1, len(parts) + 1)}
                found.add("/".join(parts[1:]) + ".py")
    return {name for name in found if (package / name).is_file()}


@pytest.mark.matrix
def test_all_that_turns_models_into_code_is_in_the_first_key(package, fresh, monkeypatch):
    starts = ("cpu/engine", "scan/engine", "scan/elementwise", "gpu/engine")
    reached, left = (
        set(),
        [f"engines/{name}.py" for name in starts] + ["bridges/jax/handler.py", "bridges/jax/cuda_handler.py"],
    )
    while left:
        module = left.pop()
        if module not in reached:
            reached.add(module)
            left += imported(module, package)
    assert {
        "core/integrators.py",
        "algorithms/tasks.py",
        "core/joints.py",
        "compile/tracing/steps.py",
        "__init__.py",
        COMPILER,
    } < reached
    assert len(reached) > 100
    before = source_digests(package)
    assert reached <= set(before)
    fresh(package)
    found = {link_key("facts", host_target())}
    for module in reached:
        with (package / module).open("a") as file:
            file.write("\n")
    after = source_digests(package)
    for number, module in enumerate(sorted(reached), 2):
        fresh()
        monkeypatch.setattr(keys, "_sources", lambda module=module: {**before, module: after[module]})
        found.add(link_key("facts", host_target()))
        assert len(found) == number, module


def test_files_of_every_kind_count_and_what_python_compiled_does_not(package):
    before = source_digests(package)
    assert "py.typed" in before and "engines/scan/trees/prefix_scans.py" in before
    for name in ("new.py", "engines/table.csv", "engines/__pycache__/new.pyc"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("new")
    assert set(source_digests(package)) - set(before) == {"new.py", "engines/table.csv"}
    (package / "new.py").rename(package / "other.py")
    assert source_digests(package)["other.py"] == source_digests(package)["engines/table.csv"]


def test_sources_that_the_cache_knows_are_not_read_again(package, fresh, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    read = []
    monkeypatch.setattr(keys, "source_digests", lambda folder: read.append(folder) or source_digests(folder))
    fresh(package)
    first = keys._generator()
    fresh()
    assert keys._generator() == first and len(read) == 2, "what has just changed is read, and not kept"

    def settled(times):
        """What is read when all changes are some seconds old; `times`: how often it is by then."""
        fresh()
        now = time.time_ns()
        with monkeypatch.context() as patch:
            patch.setattr(keys.time, "time_ns", lambda: now + 10 * keys._SETTLED_NS)
            found = keys._sources()
        assert len(read) == times and found == source_digests(package)
        return found

    settled(3)
    before = settled(3)
    file = package / "core/joints.py"
    then = file.stat()
    file.write_bytes(file.read_bytes().replace(b"a", b"b"))
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert file.stat().st_size == then.st_size and file.stat().st_mtime_ns == then.st_mtime_ns
    after = settled(4)
    assert [name for name in before if before[name] != after[name]] == ["core/joints.py"]
    assert settled(4) == after
    file.rename(package / "elsewhere.py")
    assert set(settled(5)) - set(after) == {"elsewhere.py"}
    monkeypatch.setenv(FOLDER_VARIABLE, "off")
    settled(6)


def test_sources_that_change_while_they_are_read_are_not_kept(package, fresh, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    now, edits = time.time_ns(), [0]

    def reading(folder):
        if edits:
            edits.pop()
            (package / "core/joints.py").write_text("changed")
        return source_digests(folder)

    monkeypatch.setattr(keys, "source_digests", reading)
    monkeypatch.setattr(keys.time, "time_ns", lambda: now + 10 * keys._SETTLED_NS)
    monkeypatch.setattr("robodyn.internals.package.IMPORTED_AT", now / 1e9)
    fresh(package)
    mine = keys._generator()
    assert not edits and not list((tmp_path / "objects").glob("*"))
    fresh()
    assert keys._generator() != mine, "the key of a process that runs other files than these is its own"


def all_keys(monkeypatch, key, changes):
    """The key as things are, and after each of the changes alone: of what, its name, and to what."""
    found = [key()]
    for place, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            for each in (keys._generator, keys._compiler):
                each.cache_clear()
            found.append(key())
    for each in (keys._generator, keys._compiler):
        each.cache_clear()
    assert found[0] == key() and len(bytes.fromhex(key())) == 20
    return found


def test_keys_depend_on_everything_that_determines_the_code(monkeypatch, fresh):
    target = host_target()
    others = [replace(target, **{name: "x"}) for name in ("triple", "cpu", "features", "level")]
    sources = source_digests(PACKAGE)
    llvm = [(keys.llvmlite, "__version__", "other"), (keys, "llvm_version_info", (1, 2, 3))]
    compiler = (keys, "_sources", lambda: {**sources, COMPILER: "other"})
    own = (keys, "_digest_of", lambda path: "other" if str(path).endswith(COMPILER) else "the same")
    elsewhere = (keys, "_sources", lambda: {**sources, "core/joints.py": "other"})
    version = (keys, "__version__", "other")

    found = all_keys(monkeypatch, lambda: object_key("text", target, 2), [*llvm, own])
    found += [object_key("other", target, 2), object_key("text", target, 1)]
    found += [object_key("text", other, 2) for other in others]
    assert len(set(found)) == len(found)
    same = all_keys(monkeypatch, lambda: object_key("text", target, 2), [compiler, elsewhere, version])
    assert set(same) == {found[0]}

    links = all_keys(monkeypatch, lambda: link_key("text", target), [compiler, elsewhere, version])
    links += [link_key("other", target), *(link_key("text", other) for other in others)]
    assert len({*links, *found}) == len(links) + len(found)


def test_without_source_files_there_are_versions(monkeypatch, tmp_path, fresh):
    fresh(tmp_path / "package.zip" / "robodyn")
    assert source_digests(keys._PACKAGE) == {}
    for key in (lambda: link_key("text", host_target()), lambda: object_key("text", host_target(), 1)):
        assert len(set(all_keys(monkeypatch, key, [(keys, "__version__", "other")]))) == 2


# From a text to code, and from facts to a text.


def module(number):
    return f"define i32 @answer() {{ ret i32 {number} }}\n"


def answer_of(code):
    loaded = Code(code, host_target())
    return ctypes.CFUNCTYPE(ctypes.c_int)(loaded.address("answer"))()


def linked(cache, facts="facts"):
    return Linked(facts, "the answer", host_target(), 1, cache)


@pytest.fixture
def count(monkeypatch):
    """How often LLVM was asked."""
    asked, compile_object = [], keys.compile_object

    def counted(*given):
        asked.append(given)
        return compile_object(*given)

    monkeypatch.setattr(keys, "compile_object", counted)
    return asked


def test_code_is_compiled_once_and_works_when_loaded_again(tmp_path, count):
    cache = ObjectCache(tmp_path / "objects")
    for _ in range(3):
        assert answer_of(compiled(module(42), "the answer", host_target(), 1, cache)) == 42
    assert len(count) == 1
    assert [entry.label for entry in cache.entries()] == ["the answer"]
    (path,) = cache.folder.glob("*.object")
    path.write_bytes(path.read_bytes()[:-7])
    assert answer_of(compiled(module(42), "the answer", host_target(), 1, cache)) == 42
    assert len(count) == 2
    assert answer_of(compiled(module(43), "another", host_target(), 1, cache)) == 43


def test_facts_lead_to_code_without_a_text(tmp_path, count):
    cache, texts = ObjectCache(tmp_path / "objects"), []

    def text():
        texts.append(1)
        return module(42)

    for _ in range(3):
        assert answer_of(linked(cache).code_of(text)()) == 42
    assert (len(texts), len(count)) == (1, 1)
    assert answer_of(linked(cache, "other facts, the same text").code_of(text)()) == 42
    assert (len(texts), len(count)) == (2, 1)
    assert sorted(entry.label for entry in cache.entries()) == ["the answer", *["the answer: link"] * 2]
    assert linked(cache, "unknown").code() is None and not linked(cache).too_large
    linked(cache, "large").mark_too_large()
    assert linked(cache, "large").too_large and linked(cache, "large").code() is None
    assert answer_of(linked(cache, "large").code_of(text)()) == 42 and not linked(cache, "large").too_large


def test_code_is_compiled_without_a_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "_sources", lambda: pytest.fail("read the package for nothing"))
    (tmp_path / "file").write_text("")
    for cache in (ObjectCache(None), ObjectCache(tmp_path / "file"), ObjectCache(tmp_path / "file" / "below")):
        assert answer_of(compiled(module(42), "", host_target(), 1, cache)) == 42
        assert answer_of(linked(cache, "not asked before").code_of(lambda: module(42))()) == 42
        assert not linked(cache, "not asked before").too_large


BAD_LINKS = [
    *(b"", b"too large ", b"TOO LARGE", b"0" * 31, b"0" * 33, b"0" * 32, b"F" * 32, b"0" * 32 + b"\n"),
    *(b"../../../../../../../etc/passwd", b"\xff" * 32, bytes(32), "०".encode() * 32, b"0" * (1 << 20)),
]


def test_damaged_links_are_misses(tmp_path, count):
    cache = ObjectCache(tmp_path / "objects")
    key = link_key("facts", host_target())
    for number, content in enumerate(BAD_LINKS, 1):
        linked(cache).compiled(module(42))
        cache.put(key, content)
        assert linked(cache).code() is None and not linked(cache).too_large, content
        assert answer_of(linked(cache).code_of(lambda: module(42))()) == 42
        path = cache.folder / f"{key}.object"
        path.write_bytes(path.read_bytes()[: 7 * number])
        assert linked(cache).code() is None
    assert len(count) == 1


@pytest.fixture
def arm(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    return rd.random_tree(3, seed=3, joints=("revolute", "prismatic"))


def test_answers_do_not_depend_on_what_links_say(arm, monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "llvm")
    cache, s = ObjectCache.from_environment(), states_of(arm, (9,), seed=1)
    wanted = rd.Dynamics(arm, engine="cpu").inverse_dynamics(s.q, s.qd, s.qdd)
    links = [entry.key for entry in cache.entries() if entry.label.endswith(": link")]
    assert len(links) == 1
    for content in (*BAD_LINKS, b"too large"):
        for key in links:
            cache.put(key, content)
        assert difference(rd.Dynamics(arm, engine="cpu").inverse_dynamics(s.q, s.qd, s.qdd), wanted) < 1e-13


def test_answers_do_not_depend_on_what_stands_in_the_place_of_code(arm):
    cache, s = ObjectCache.from_environment(), states_of(arm, (9,), seed=1)
    wanted = rd.Dynamics(arm, engine="cpu").inverse_dynamics(s.q, s.qd, s.qdd)
    (entry,) = [entry for entry in cache.entries() if not entry.label.startswith(("robodyn ", "sources "))]
    good = cache.get(entry.key)
    for content in (*BAD_LINKS, good[:-1], good + b"x", b"?" + good[1:], good[:8] + b"\xff" * 40 + good[48:]):
        cache.put(entry.key, content)
        found = rd.Dynamics(arm, engine="cpu").inverse_dynamics(s.q, s.qd, s.qdd)
        assert (found == wanted).all()


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics_gradient"])
@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.some(of=2, rest="matrix")
def test_code_is_there_where_link_and_object_are(code, query, single, arm):
    """Of every kernel that a query takes."""
    engine = rd.Dynamics(arm, engine="cpu", code=code).engine
    engine.compiler.hurried = False
    task, cache = QUERIES[query].plain_task(arm), engine.compiler.cache
    request = engine.request(task)

    def there():
        return engine.compiler.in_cache(request, single=single)

    assert not there()
    made = engine.compiler.kernel(request, single=single)
    assert there()
    stages = [kernel for kernel in getattr(made.keep, "kernels", ()) if kernel.request.algorithm is not task]
    needed = [entry for entry in cache.entries() if not entry.label.startswith(("robodyn ", "sources "))]
    direct = code == "unrolled" and backend_of(request) is X86  # without a link
    assert len(needed) == (1 if direct else 2) * max(len(stages), 1)
    for entry in needed:
        kept = cache.get(entry.key)
        (cache.folder / f"{entry.key}.object").unlink()
        assert not there()
        cache.put(entry.key, kept, entry.label)
    assert there()


def test_loops_printed_for_other_traits_have_keys_of_their_own(arm, monkeypatch):
    engine = rd.Dynamics(arm, engine="cpu", code="rolled").engine
    request = engine.request(QUERIES["mass_matrix"].plain_task(arm))
    engine.compiler.kernel(request, single=False)
    assert engine.compiler.in_cache(request)
    everything = Traits(tuple(range(len(KINDS))), armature=True, mimic=True)
    monkeypatch.setattr("robodyn.engines.cpu.loops.program.traits_of", lambda model: everything)
    assert not engine.compiler.in_cache(request)


# In other processes.

_ROLLOUT = """
import sys
import threading
import robodyn as rd
from robodyn.compile import keys
from robodyn.engines.cpu import engine
if "nothing to compile" in sys.argv:
    def fail(*_):
        raise AssertionError("compiled")
    keys.compile_object = fail
model = rd.random_tree(2, seed=1, joints=("revolute",))
dyn = rd.Dynamics(model, engine="cpu", threads=1)
if "edit" in sys.argv:
    import pathlib, time
    time.sleep(0.1)
    path = pathlib.Path(rd.__file__).parent / "core/integrators.py"
    path.write_text(path.read_text().replace("half = 0.5 * dt", "half = 0.7 * dt"))
state = [0.3, -0.4], [0.5, 0.6], [0.7, -0.8]
run = dyn.rollout(*state, 1e-2, 2, integrator="midpoint")
assert len(dyn.engine._marches) == 1
print(run.q[-1].tobytes().hex(), dyn.inverse_dynamics(*state).tobytes().hex())
"""


@pytest.fixture
def answer(package, tmp_path):
    """What a process answers with the copy of the package: a state after steps, and torques."""

    def run(*words):
        environment = {
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",  # Python itself takes files of one size and second for the same
            FOLDER_VARIABLE: str(tmp_path / "objects"),
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _ROLLOUT, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [np.frombuffer(bytes.fromhex(word)) for word in done.stdout.split()]

    return run


@pytest.mark.matrix
def test_edited_sources_give_new_answers_and_comments_compile_nothing(package, answer):
    first = answer()
    assert np.array_equal(answer("nothing to compile"), first)
    with (package / "core/joints.py").open("a") as file:
        file.write("# A comment.\n")
    assert np.array_equal(answer("nothing to compile"), first)

    edit(package / "core/integrators.py", "half = 0.5 * dt", "half = 0.7 * dt")
    later = answer()
    assert 1e-9 < np.abs(later[0] - first[0]).max() < 1e-1 and np.array_equal(later[1], first[1])
    edit(package / "core/joints.py", "rotation_z(q[0])", "rotation_z(0.5 * q[0])")
    turned = answer()
    assert min(np.abs(new - old).max() for new, old in zip(turned, later, strict=True)) > 1e-9

    edit(package / "core/joints.py", "rotation_z(0.5 * q[0])", "rotation_z(q[0])")
    edit(package / "core/integrators.py", "half = 0.7 * dt", "half = 0.5 * dt")
    assert np.array_equal(answer("nothing to compile"), first)


@pytest.mark.matrix
def test_edits_under_a_running_process_are_not_taken_for_what_it_runs(answer):
    old = answer("edit")
    new = answer()
    assert np.abs(new[0] - old[0]).max() > 1e-9 and np.array_equal(new[1], old[1])


def test_tasks_of_one_name_are_told_apart_by_what_they_are_made_of(tmp_path, monkeypatch):
    """A chain or an algorithm that a user puts together from robodyn's own steps is kept, but not for another one."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    model = rd.load_urdf(own("double_pendulum"))
    q = np.array([[0.3, -0.7]])
    sides = [Solution("bias", None, DofOutput("tau")), Solution(None, "bias", DofOutput("tau"))]
    chains = [
        Chain(
            "mine",
            ("q", "qd"),
            (Stage(rnea(("q", "qd")), {"tau": "bias"}), Stage(CRBA), Solve("H", {"a": side})),
            ("a",),
        )
        for side in sides
    ]
    found = []
    for chain in chains:
        engine = rd.Dynamics(model, engine="cpu").engine
        out = np.full((1, 2), np.nan)
        engine.run(chain, {"q": q, "qd": q}, {"a": out})
        assert engine.request(chain).cacheable
        found.append(out)
    np.testing.assert_allclose(found[0], -found[1])
    energies = [replace(each, name="mine") for each in (KINETIC_ENERGY, POTENTIAL_ENERGY)]
    for energy, output in zip(energies, ("K", "U"), strict=True):
        wanted, given = np.full(1, np.nan), {"q": q, "qd": q}
        rd.Dynamics(model, engine="reference").engine.run(energy, given, {output: wanted})
        got = np.full(1, np.nan)
        rd.Dynamics(model, engine="cpu").engine.run(energy, given, {output: got})
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_steps_that_close_over_other_things_are_other_steps(arm):
    """World and body frames have steps of one name; a user's own steps are never kept."""
    frames = [fingerprint(kinematics.link_velocity(frame)) for frame in ("world", "body")]
    assert frames[0][0] != frames[1][0] and frames[0][1] and frames[1][1]
    assert fingerprint(kinematics.link_velocity("world")) == frames[0]
    sweeps = (*CRBA.sweeps[:-1], replace(CRBA.sweeps[-1], visit=lambda *_: ({}, {})))
    assert not fingerprint(replace(CRBA, sweeps=sweeps))[1]


# What compiles while something else is done.

TEXT = """define i64 @kernel(i64 %x) {
  %y = add i64 %x, 41
  ret i64 %y
}
"""


@pytest.mark.parametrize("threads", [True, False])
def test_what_is_compiled_meanwhile_is_what_is_compiled_at_once(threads, tmp_path, monkeypatch):
    if not threads:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    target, cache = host_target(), ObjectCache(tmp_path / "objects")
    code = keys.compiling(TEXT, "a test", target, 1, cache)()
    assert code == compiled(TEXT, "a test", target, 1, ObjectCache(None))
    monkeypatch.setattr(keys, "compile_object", refuse)
    assert keys.compiling(TEXT, "a test", target, 1, cache)() == code  # what is kept is not compiled
    loaded = Code(code, target)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("kernel"))(1) == 42


def test_what_does_not_compile_meanwhile_is_told_to_who_asks(tmp_path):
    wait = keys.compiling("nonsense", "a test", host_target(), 1, ObjectCache(tmp_path / "objects"))
    with pytest.raises(rd.UnavailableError, match="LLVM cannot compile"):
        wait()


def refuse(*_):
    raise RuntimeError("can't start new thread")


# The collector waits while code is made.


def waits():
    """Whether the collector waits."""
    return gc.get_threshold()[0] > 1 << 20


@pytest.fixture
def usual():
    """Thresholds that are not the default."""
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield (701, 11, 12)
    gc.set_threshold(*before)
    gc.enable()


def test_the_collector_is_left_as_it_was(usual):
    with pytest.raises(ZeroDivisionError), no_collection():
        assert waits()
        with no_collection():
            assert waits()
        raise ZeroDivisionError
    assert gc.get_threshold() == usual and gc.isenabled()


def test_users_may_switch_the_collector_meanwhile(usual):
    with no_collection():
        gc.disable()
    assert gc.get_threshold() == usual and not gc.isenabled()
    with no_collection():
        gc.enable()
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7) and gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_the_users_in_a_child_of_another_threads_fork(enabled, usual):
    inside, done = threading.Event(), threading.Event()

    def work():
        with no_collection():
            inside.set()
            done.wait(PATIENCE)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(PATIENCE)
    if not enabled:
        gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, from Python 3.12 on
        child = os.fork()
    if child == 0:
        os._exit(0 if gc.get_threshold() == usual and gc.isenabled() == enabled else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join(PATIENCE)
    assert status == 0 and gc.get_threshold() == usual


def test_signals_that_raise_do_not_leave_the_collector_waiting(usual):
    """A wait that nobody ended ends with the next."""

    def raises(*_):
        raise KeyboardInterrupt

    before, ended = signal.signal(signal.SIGALRM, raises), time.monotonic() + 2.0
    count = 0
    try:
        while time.monotonic() < ended:
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + count % 7))
                while True:
                    with no_collection():
                        pass
            count += 1
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    with no_collection():
        pass
    assert count > 100 and gc.get_threshold() == usual


def test_the_collector_runs_while_llvm_compiles(arm, monkeypatch):
    seen = []

    def compiles(self, text):
        seen.append(waits())
        return b""

    monkeypatch.setattr(Linked, "compiled", compiles)
    task = QUERIES["inverse_dynamics"].plain_task(arm)
    request = rd.Dynamics(arm, engine="cpu").engine.request(task)
    LLVM.made(Linked("", "", request.target, 1, ObjectCache(None)), request, request.trace())
    assert seen == [False]


def test_no_thread_compiles_where_memory_is_limited(tmp_path, monkeypatch):
    import resource

    target, cache = host_target(), ObjectCache(tmp_path / "objects")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 40, resource.RLIM_INFINITY))
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread"))
    assert keys.compiling(TEXT, "a test", target, 1, cache)() == compiled(TEXT, "a test", target, 1, ObjectCache(None))
