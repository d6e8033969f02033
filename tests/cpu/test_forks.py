"""Forks of a process in which other threads are at work: the child answers, whatever they were in the middle of."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from robots import own

from robodyn.compile.cache import FOLDER_VARIABLE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PATIENCE = 1500.0  # seconds that nothing here comes near unless something hangs

_COMMON = """
import os, sys, threading, time
import numpy as np
import robodyn as rd

def in_child(check, seconds=60):
    # The exit code of a child that runs `check`; it is killed where it hangs.
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 3)
        finally:
            os._exit(4)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "the child hangs"

def answers(seed, bodies=1):
    # Whether machine code and the reference engine agree about a robot that is made here.
    model = rd.random_tree(bodies, seed=seed)
    q, zero = model.random_configuration(seed, (3,)), np.zeros(model.nv)
    wanted = rd.Dynamics(model, engine="reference").forward_dynamics(q, zero, zero)
    return np.abs(rd.Dynamics(model, threads=2).forward_dynamics(q, zero, zero) - wanted).max() < 1e-10
"""

_PROPERTY = """
from robodyn.api.queries import core

inside, go_on, real = threading.Event(), threading.Event(), core.singularity

def slow(model):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        go_on.wait(100)
    return real(model)

core.singularity = slow
assert answers(1)
threading.Thread(target=answers, args=(2,), daemon=True).start()
assert inside.wait(100)
print(in_child(lambda: answers(3)))
go_on.set()
"""

_IMPORT = """
from importlib.machinery import PathFinder, SourceFileLoader

class Slow(SourceFileLoader):
    def exec_module(self, module):
        inside.set()
        time.sleep(1.0)
        super().exec_module(module)

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name != sys.argv[1]:
            return None
        found = PathFinder.find_spec(name, path)
        found.loader = Slow(name, found.origin)
        return found

def chained():
    from robodyn.engines.cpu.chains import build as chained
    return bool(chained.chained_kernel)

def first():
    return answers(1)

inside, imports = threading.Event(), globals()[sys.argv[2]]
assert (imports is first or answers(1)) and sys.argv[1] not in sys.modules
sys.meta_path.insert(0, Finder)
threading.Thread(target=imports, daemon=True).start()
assert inside.wait(100)
print(in_child(imports))
"""

_LOCK = """
from robodyn.internals import forks
from robodyn.engines.cpu.threads import pool

def free(lock):
    with lock:
        return True

def held():
    with ours, pool._LOCK:
        inside.set()
        time.sleep(1000)

inside, ours, mine = threading.Event(), forks.lock(), forks.lock()
threading.Thread(target=held, daemon=True).start()
assert inside.wait(100)
with mine:
    print(in_child(lambda: free(ours) and free(pool._LOCK) and free(mine) and mine._is_owned()))
"""

_INTERRUPTED = """
import signal
from robodyn.compile.llvm import jit

os.environ["ROBODYN_CPU_BACKEND"] = "llvm"  # which holds locks while it compiles

def slow(text, target):
    inside.set()
    time.sleep(1.0)
    return real(text, target)

class OutOfTime(Exception):
    pass

def handler(*_):
    raise OutOfTime

inside, real = threading.Event(), jit._module
assert answers(1)
jit._module = slow
threading.Thread(target=answers, args=(2,), daemon=True).start()
assert inside.wait(100)
jit._module = real
sys.unraisablehook = lambda told: told.exc_type is OutOfTime and print("told")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
print(in_child(lambda: answers(3)))
found = []
other = threading.Thread(target=lambda: found.append(bool(answers(4))), daemon=True)
other.start()
other.join(100)
print(found)
"""

_HANDLER = """
import signal
from robodyn.internals import forks

def held():
    with guard:
        inside.set()
        time.sleep(1.0)

def handler(*_):
    children.append(os.fork())
    if not children[-1]:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)

inside, guard, children = threading.Event(), forks.lock(), []
signal.signal(signal.SIGUSR1, handler)
threading.Thread(target=held, daemon=True).start()
assert inside.wait(100)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
with guard:
    pass
if not children[0]:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
"""

_MANY = """
os.environ["ROBODYN_CPU_BACKEND"] = "llvm"  # as above
forks = int(sys.argv[1])
seeds = iter(range(1000, 1000000))

def loads():
    return rd.load_urdf(sys.argv[2]).nq == 6

def work():
    while True:
        assert answers(next(seeds), 2) and loads()

warm = rd.Dynamics(rd.random_tree(3, seed=5), threads=2)
q = warm.model.random_configuration(0, (4000,))
wanted = warm.gravity_force(q)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()

def check():
    return np.array_equal(warm.gravity_force(q), wanted) and answers(os.getpid() % 900) and loads()

for fork in range(forks):
    assert in_child(check, 300) == 0, fork
print("done")
"""


def run(program: str, *arguments: str, code_cache: str = "off") -> str:
    """What a program of its own prints. From Python 3.12 on a fork of several threads warns, beside the point here."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", _COMMON + program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, FOLDER_VARIABLE: code_cache},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_property_that_another_thread_computes_does_not_hold_up_the_child():
    assert run(_PROPERTY) == "0"


@pytest.mark.parametrize(
    ("module", "what"),
    [("engines.cpu.chains.build", "chained"), ("engines.recursions", "first"), ("compile.llvm.jit", "first")],
)
@pytest.mark.matrix
def test_a_module_that_another_thread_imports_does_not_hold_up_the_child(module, what):
    """Also where nothing was asked before."""
    assert run(_IMPORT, f"robodyn.{module}", what) == "0"


def test_locks_of_other_threads_are_free_in_the_child():
    assert run(_LOCK) == "0"


@pytest.mark.matrix
def test_a_fork_that_a_signal_interrupts_waits_all_the_same():
    """Python prints what handlers raise in the middle of a fork, and forks."""
    assert run(_INTERRUPTED) == "told\n0\n[True]"


def test_a_fork_in_a_handler_frees_the_lock_that_its_thread_waits_for():
    assert run(_HANDLER) == "0"


@pytest.mark.matrix
def test_forks_while_four_threads_load_and_compile():
    assert run(_MANY, "10", str(own("arm6"))) == "done"


@pytest.mark.nightly
def test_many_forks_while_four_threads_load_and_compile():
    assert run(_MANY, "500", str(own("arm6"))) == "done"
