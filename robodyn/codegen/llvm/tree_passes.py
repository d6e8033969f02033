"""Passes over a parent array as machine code: one loop each, for trees of millions of bodies.

Each is `void name(i64 n, ptr a, ptr b, ...)` on arrays of 64-bit integers. Bodies come after their parents, so a pass
goes forward for what follows from the parent and backward for what children hand over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

_FORWARD = """
define void @{name}(i64 %n, {arrays}) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  {carried}
  %p.at = getelementptr i64, ptr %parent, i64 %i
  %p = load i64, ptr %p.at
  %root = icmp slt i64 %p, 0
{body}
next:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _at(name: str, array: str, index: str) -> str:
    return f"  %{name} = getelementptr i64, ptr %{array}, i64 %{index}\n"


def _forward(name: str, arrays: tuple[str, ...], body: str, carried: str = "") -> str:
    listed = ", ".join(f"ptr %{array}" for array in ("parent", *arrays))
    return _FORWARD.format(name=name, arrays=listed, body=body, carried=carried)


_DEPTH = _forward(
    "depth",
    ("depth",),
    "  br i1 %root, label %first, label %below\nfirst:\n  br label %write\nbelow:\n"
    + _at("above.at", "depth", "p")
    + "  %above = load i64, ptr %above.at\n  %deeper = add i64 %above, 1\n  br label %write\nwrite:\n"
    "  %value = phi i64 [ 0, %first ], [ %deeper, %below ]\n"
    + _at("to", "depth", "i")
    + "  store i64 %value, ptr %to\n  br label %next",
)

_SUBTREE_SIZE = """
define void @subtree_size(i64 %n, ptr %parent, ptr %size) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %rest = phi i64 [ %n, %entry ], [ %i, %next ]
  %i = sub i64 %rest, 1
  %p.at = getelementptr i64, ptr %parent, i64 %i
  %p = load i64, ptr %p.at
  %root = icmp slt i64 %p, 0
  br i1 %root, label %next, label %give
give:
  %own.at = getelementptr i64, ptr %size, i64 %i
  %own = load i64, ptr %own.at
  %theirs.at = getelementptr i64, ptr %size, i64 %p
  %theirs = load i64, ptr %theirs.at
  %sum = add i64 %theirs, %own
  store i64 %sum, ptr %theirs.at
  br label %next
next:
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

_PREORDER_RANK = _forward(
    "preorder_rank",
    ("size", "rank", "free"),
    _at("size.at", "size", "i") + "  %own = load i64, ptr %size.at\n  br i1 %root, label %first, label %below\nfirst:\n"
    "  %after.tree = add i64 %next.root, %own\n  br label %write\nbelow:\n"
    + _at("free.at", "free", "p")
    + "  %place = load i64, ptr %free.at\n  %after = add i64 %place, %own\n  store i64 %after, ptr %free.at\n"
    "  br label %write\nwrite:\n"
    "  %mine = phi i64 [ %next.root, %first ], [ %place, %below ]\n"
    "  %later = phi i64 [ %after.tree, %first ], [ %next.root, %below ]\n"
    + _at("to", "rank", "i")
    + "  store i64 %mine, ptr %to\n  %child = add i64 %mine, 1\n"
    + _at("own.free", "free", "i")
    + "  store i64 %child, ptr %own.free\n  br label %next",
    carried="%next.root = phi i64 [ 0, %entry ], [ %later, %next ]",
)

_HEAVY_CHILD = _forward(
    "heavy_child",
    ("size", "heaviest", "heavy"),
    "  br i1 %root, label %next, label %below\nbelow:\n"
    + _at("size.at", "size", "i")
    + "  %own = load i64, ptr %size.at\n"
    + _at("best.at", "heaviest", "p")
    + "  %best = load i64, ptr %best.at\n  %heavier = icmp sgt i64 %own, %best\n"
    "  br i1 %heavier, label %take, label %next\ntake:\n  store i64 %own, ptr %best.at\n"
    + _at("to", "heavy", "p")
    + "  store i64 %i, ptr %to\n  br label %next",
)

_HEAVY_PATHS = _forward(
    "heavy_paths",
    ("heavy", "head", "level"),
    "  br i1 %root, label %first, label %below\nfirst:\n  br label %write\nbelow:\n"
    + _at("heavy.at", "heavy", "p")
    + "  %chosen = load i64, ptr %heavy.at\n  %continues = icmp eq i64 %chosen, %i\n"
    + _at("head.at", "head", "p")
    + "  %head.above = load i64, ptr %head.at\n"
    + _at("level.at", "level", "p")
    + "  %level.above = load i64, ptr %level.at\n  %outer = add i64 %level.above, 1\n"
    "  %head.here = select i1 %continues, i64 %head.above, i64 %i\n"
    "  %level.here = select i1 %continues, i64 %level.above, i64 %outer\n  br label %write\nwrite:\n"
    "  %head.value = phi i64 [ %i, %first ], [ %head.here, %below ]\n"
    "  %level.value = phi i64 [ 0, %first ], [ %level.here, %below ]\n"
    + _at("head.to", "head", "i")
    + "  store i64 %head.value, ptr %head.to\n"
    + _at("level.to", "level", "i")
    + "  store i64 %level.value, ptr %level.to\n  br label %next",
)

_MODULE = _DEPTH + _SUBTREE_SIZE + _PREORDER_RANK + _HEAVY_CHILD + _HEAVY_PATHS


@cache
def passes() -> Callable[..., None]:
    """`run(name, parent, *arrays)`: one pass over arrays (n,) of 64-bit integers.

    Raises:
        UnavailableError: no machine code here.
    """
    from robodyn.codegen.cache import ObjectCache
    from robodyn.codegen.keys import compiled
    from robodyn.codegen.llvm.jit import OPT, Code
    from robodyn.codegen.llvm.target import host_target

    target = host_target()
    code = Code(compiled(_MODULE, "passes over trees", target, OPT, ObjectCache.from_environment()), target)

    def run(name: str, parent: NDArray[np.intp], *arrays: NDArray[np.intp]) -> None:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + len(arrays)))
        pointers = (array.ctypes.data for array in (parent, *arrays))
        signature(code.address(name))(parent.size, *pointers)

    return run
