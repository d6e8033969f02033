"""Locks of the package are free in the child of a fork, whatever thread of the parent held them."""

from __future__ import annotations

import ast
import re

import pytest
from robots import ROOT

MADE = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
HOLDING = {"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue", "ThreadPoolExecutor", "ProcessPoolExecutor"}
"""What has locks of its own."""

ALLOWED = {
    ("internals/forks.py", "lock", "RLock"): "the lock that is free after forks",
    ("compile/llvm/jit.py", "", "RLock"): "a fork waits for it, and gives it back in parent and child",
    ("engines/cpu/threads/pool.py", "reset", "RLock"): "made anew in the child",
    ("engines/cpu/threads/pool.py", "reset", "Lock"): "made anew in the child",
    ("engines/cpu/threads/pool.py", "_run_futures", "ThreadPoolExecutor"): "made anew in the child",
    ("engines/scan/algorithms/hybrid_abia.py", "*", "ThreadPoolExecutor"): "lives as long as a call",
    ("engines/gpu/device.py", "*", "ThreadPoolExecutor"): "lives as long as a call",
    ("compile/loops/gpu.py", "run_blocks", "Barrier"): "lives as long as a call",
    ("compile/loops/gpu.py", "run_blocks", "Lock"): "lives as long as a call",
    ("tools/viewer/view.py", "__init__", "Event"): "of a view, whose server and threads are not in the child either",
}
"""By file, the function that makes it ("" for module and class level, "*" for any), and kind: why it may."""


def made(tree):
    """(function, kind, line) of what a module makes of `MADE` and `HOLDING`: calls, and names that are handed on to be
    called, as in `field(default_factory=Lock)`."""
    found = []

    def look(node, function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = getattr(node, "name", "<lambda>")
            # Decorators and defaults are of the place where the function is.
            outside = [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]
            for each in outside:
                look(each, function)
            for each in node.body if isinstance(node.body, list) else [node.body]:
                look(each, name)
            return
        if isinstance(node, ast.AnnAssign):  # what stands in annotations is not made
            for each in filter(None, [node.target, node.value]):
                look(each, function)
            return
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.lstrip("_") in MADE | HOLDING and isinstance(getattr(node, "ctx", None), ast.Load):
            found.append((function, name.lstrip("_"), node.lineno))
        for each in ast.iter_child_nodes(node):
            look(each, function)

    look(tree, "")
    return found


def imported(tree):
    """Names in a module that come from those modules which make locks."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [node.names for node in froms if node.module in ("threading", "queue", "concurrent.futures", "_thread")]
    return {each.asname or each.name for group in names for each in group}


MODULES = sorted((ROOT / "robodyn").rglob("*.py"))


def unknown(text, file):
    """Locks in a module that are not free in the child of a fork."""
    if not re.search(r"\b(threading|queue|multiprocessing|_thread|concurrent)\b", text):
        return []
    tree = ast.parse(text)
    ours, found = imported(tree), []
    for function, kind, line in made(tree):
        plainly = kind in ours or re.search(rf"\b(threading|queue|multiprocessing|futures)\.{kind}\b", text)
        known = {(file, function, kind), (file, "*", kind)} & set(ALLOWED)
        if plainly and not known:
            found.append(
                f"robodyn/{file}:{line}: {kind}; robodyn.internals.forks.lock() is free in the child of a fork"
            )
    return found


def test_locks_are_free_after_forks():
    found = [
        each
        for path in MODULES
        for each in unknown(path.read_text(encoding="utf-8"), path.relative_to(ROOT / "robodyn").as_posix())
    ]
    assert not found, "\n".join(found)


def test_what_is_allowed_is_there():
    for file, function, kind in ALLOWED:
        there = made(ast.parse((ROOT / "robodyn" / file).read_text(encoding="utf-8")))
        assert any(function in ("*", where) and kind == what for where, what, _ in there), (file, function, kind)


@pytest.mark.parametrize(
    "text",
    [
        "import threading\n_L = threading.Lock()",
        "import threading as t, threading\nclass A:\n    guard = threading.RLock()",
        "from threading import Condition\nC = [Condition()]",
        "from threading import Lock\ndef f(guard=Lock()): pass",
        "from threading import Event\nclass A:\n    def __init__(self): self.ended = Event()",
        "import threading\nclass A:\n    guard: object = field(default_factory=threading.Lock)",
        "import threading\nif True:\n    try:\n        L = threading.Semaphore(3)\n    finally:\n        pass",
        "import queue\nQ = queue.Queue()",
    ],
)
def test_locks_are_found(text):
    assert unknown(text, "some/module.py")


@pytest.mark.parametrize(
    "text",
    [
        "from robodyn.internals import forks\nL = forks.lock()",
        "import threading\ndef f(guard: threading.Lock) -> None: pass\nt = threading.local()",
        "from robodyn.core.constraints.kinds import Lock\nfound = [Lock('a')]",
    ],
)
def test_what_is_no_lock_is_not(text):
    assert not unknown(text, "some/module.py")
