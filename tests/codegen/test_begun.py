"""Modules whose compilation is begun before they are asked for: made once, the same code, and errors where it is asked
for."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable

import pytest

from robodyn.compile import keys
from robodyn.compile.cache import ObjectCache
from robodyn.compile.keys import begin, compiled
from robodyn.compile.llvm.jit import OPT, Code, compile_object
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.llvm import Module
from robodyn.engines.cpu.kernels import KernelCompiler
from robodyn.engines.cpu.tiered_compilation import HURRIED
from robodyn.engines.cpu.wrapper import Descriptor, Wrapper, export_kernels
from robodyn.internals.errors import UnavailableError

TEXT = "define i64 @answer() {\n  ret i64 42\n}\n"
BROKEN = "define i64 @answer() {\n  ret i32 42\n}\n"
PATIENCE = 60.0


@pytest.fixture
def made(monkeypatch):
    """Texts, levels and threads of what is compiled; nothing begun before or left behind."""
    found = []

    def noting(text, target, opt):
        found.append((text, opt, threading.current_thread()))
        return compile_object(text, target, opt)

    monkeypatch.setattr(keys, "_BEGUN", {})
    monkeypatch.setattr(keys, "compile_object", noting)
    return found


@pytest.fixture(params=["kept", "not kept"])
def cache(request, tmp_path):
    return ObjectCache(tmp_path / "objects" if request.param == "kept" else None)


def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


def test_it_is_made_once_in_another_thread(made, cache):
    target = host_target()
    begin(TEXT, "a test", target, OPT, cache)
    begin(TEXT, "a test", target, OPT, cache)
    code = compiled(TEXT, "a test", target, OPT, cache)
    assert code == compile_object(TEXT, target, OPT)
    ((_, _, thread),) = made
    assert thread is not threading.main_thread() and not keys._BEGUN
    assert Code(code, target).address("answer")
    compiled(TEXT, "a test", target, OPT, cache)
    assert len(made) == (1 if cache.folder else 2), "what was begun is given out once"


def test_another_level_is_other_code(made, cache):
    target = host_target()
    begin(TEXT, "a test", target, HURRIED, cache)
    compiled(TEXT, "a test", target, OPT, cache)
    until(lambda: len(made) == 2)
    assert {level for _, level, _ in made} == {HURRIED, OPT}


def test_what_the_cache_has_is_not_made(made, tmp_path):
    target, cache = host_target(), ObjectCache(tmp_path / "objects")
    wanted = compiled(TEXT, "a test", target, OPT, cache)
    made.clear()
    begin(TEXT, "a test", target, OPT, cache)
    assert compiled(TEXT, "a test", target, OPT, cache) == wanted and not made


def test_errors_are_for_those_who_ask(made, cache):
    target = host_target()
    for _ in range(2):
        begin(BROKEN, "a test", target, OPT, cache)
        with pytest.raises(UnavailableError):
            compiled(BROKEN, "a test", target, OPT, cache)
    with pytest.raises(UnavailableError):
        compiled(BROKEN, "a test", target, OPT, cache)


def test_where_there_is_no_thread_it_is_made_when_it_is_asked_for(made, cache, monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    target = host_target()
    monkeypatch.setattr(threading.Thread, "start", refused)
    begin(TEXT, "a test", target, OPT, cache)
    assert not made
    assert compiled(TEXT, "a test", target, OPT, cache)
    assert [thread for *_, thread in made] == [threading.main_thread()]


def test_where_memory_is_limited_there_is_no_thread(made, cache, monkeypatch):
    target = host_target()
    monkeypatch.setattr(keys, "memory_is_limited", lambda: True)
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread"))
    begin(TEXT, "a test", target, OPT, cache)
    assert compiled(TEXT, "a test", target, OPT, cache) and len(made) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_child_of_a_fork_makes_it_itself(cache, monkeypatch):
    """The thread that makes it is the parent's."""
    target, inside, done = host_target(), threading.Event(), threading.Event()
    parent = os.getpid()

    def slow(text, target, opt):
        if os.getpid() == parent:
            inside.set()
            done.wait(PATIENCE)
        return compile_object(text, target, opt)

    monkeypatch.setattr(keys, "_BEGUN", {})
    monkeypatch.setattr(keys, "compile_object", slow)
    begin(TEXT, "a test", target, OPT, cache)
    assert inside.wait(PATIENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, from Python 3.12 on
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if compiled(TEXT, "a test", target, OPT, cache) else 3)
        finally:
            os._exit(4)
    end, status = time.monotonic() + PATIENCE, None
    while status is None and time.monotonic() < end:
        ended, found = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(found) if ended else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, 9)
        os.waitpid(child, 0)
    done.set()
    assert status == 0
    assert compiled(TEXT, "a test", target, OPT, cache)


@pytest.mark.parametrize(("hurried", "levels"), [(True, [HURRIED]), (False, [OPT])])
def test_a_maker_begins_what_it_will_ask_for(made, tmp_path, monkeypatch, hurried, levels):
    """One module, at the level of the first answer; the better one comes later."""
    later: list[Callable[[], Code]] = []
    monkeypatch.setattr("robodyn.engines.cpu.kernels.later", lambda code, make: later.append(make))
    maker, target = KernelCompiler(ObjectCache(tmp_path / "objects"), hurried=hurried), host_target()
    module = Module({})
    export_kernels(module)
    text = "define void @run(ptr %a, i64 %b, i64 %c, i64 %d, ptr %e) {\n  ret void\n}\n" + module.text()
    maker.begin(text, "a test", target, hurried=True)
    descriptor = Descriptor()
    around = Wrapper(maker, text, "a test", target, 3, descriptor)
    assert around.address("kernel") == around._first.address("kernel3")
    assert descriptor.run == around._first.address("run")
    assert [level for _, level, _ in made] == levels and len(later) == hurried
    assert made[0][2] is not threading.main_thread()
    if hurried:
        around.replace(later[0]())
        (better,) = around._held
        assert descriptor.run == better.address("run") != around._first.address("run")
        maker.begin(text, "a test", target, hurried=True)
        assert [level for _, level, _ in made] == [HURRIED, OPT], "the better one is kept, and nothing begun again"
