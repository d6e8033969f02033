"""An algorithm at every unit vector in two programs: what does not depend on the vector, and the rest.

Half of the operations of a second derivative along a vector, or more, do not depend on that vector. Whole second
derivatives are such ones along all unit vectors, which are the lanes of a few vectors. As one program all of it is
computed in each of these, in every lane. So the first half is a program for one state, which leaves a few hundred or
thousand scalars; of the second one instructions spread each over its vector as they read it, as they do with constants.
That takes AVX-512: elsewhere, and with LLVM's code, unit vectors are run through one program.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from robodyn.compile.cache import ObjectCache
from robodyn.compile.gc_pause import no_collection
from robodyn.compile.keys import Linked
from robodyn.compile.tracing.program import SHARED, Program
from robodyn.compile.x86.image import Image
from robodyn.compile.x86.program import Assembled, assembled
from robodyn.engines.cpu.backends import X86, backend_of
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.route import kept_at, most_operations, parts_of, program_within
from robodyn.internals.records import dataclass

_SPREADS = frozenset[str](), frozenset((SHARED,))
"""Inputs of either half that are the same for all states of a vector."""
_MAGIC = b"RDhalf\0\1"
_HEAD = struct.Struct("<8s2q")


@dataclass(frozen=True)
class Images:
    """Machine code of both halves as each is kept by itself, and how many scalars the first leaves."""

    shared: int
    first: bytes
    second: bytes

    def packed(self) -> bytes:
        """Both, as they are kept."""
        return _HEAD.pack(_MAGIC, self.shared, len(self.first)) + self.first + self.second

    @staticmethod
    def unpacked(kept: bytes) -> Images | None:
        """What `packed` made; None if it did not."""
        if len(kept) < _HEAD.size:
            return None
        magic, shared, size = _HEAD.unpack_from(kept)
        if magic != _MAGIC or shared <= 0 or not 0 <= size <= len(kept) - _HEAD.size:
            return None
        found = Images(shared, kept[_HEAD.size : _HEAD.size + size], kept[_HEAD.size + size :])
        return found if Image.unpacked(found.first) and Image.unpacked(found.second) else None


@dataclass(frozen=True)
class Hoisted:
    """Two programs of what a request of an algorithm asks for along the input `vector`; `linked`: where their code is
    kept; `images`: what is there; `traced`: both, where there is none."""

    request: Request
    vector: str
    linked: Linked
    images: Images | None = None
    traced: tuple[Program, Program] | None = None

    @property
    def requests(self) -> tuple[Request, Request]:
        """What each is for: one state, or a vector of them."""
        return self.request.for_one_state, self.request

    def programs(self) -> tuple[Program, Program]:
        """Both, traced if nobody has."""
        return self.traced or self.request.trace().halves(self.vector)

    def _code(self, program: Program, k: int) -> Assembled:
        """Machine code of the k-th, made anew."""
        asked = self.requests[k]
        return assembled(program, asked.dtype, asked.target, spread=_SPREADS[k])

    @no_collection()
    def made(self) -> Images:
        """The code, made and then kept, unless it is there."""
        if self.images is not None:
            return self.images
        programs = self.programs()
        codes = (self._code(program, k).image().packed() for k, program in enumerate(programs))
        images = Images(programs[0].outputs[0].size, *codes)
        self.linked.keep(images.packed())
        return images

    def listing(self, k: int) -> str:
        """The k-th in the processor's language, to look at."""
        return self._code(self.programs()[k], k).listing()

    def module(self, k: int) -> str:
        """The k-th in LLVM's language, to look at."""
        return replace(self.requests[k], vectors=_SPREADS[k]).unrolled_module(self.programs()[k])


def find_hoisted(request: Request, mode: str, cache: ObjectCache, *, trace: bool = True) -> Hoisted | None:
    """The halves of what a request asks for at every unit vector; None where it is not made so.

    Args:
        request: what is asked for.
        mode: as for `find_route`.
        cache: where machine code is kept, and what is too large.
        trace: whether to trace what the cache does not have.
    """
    vector = request.algorithm.unit_input
    assert vector is not None
    (part,) = parts_of(request)
    if part.target.level != "avx512" or part.target.narrow or backend_of(part) is not X86:
        return None
    limit = most_operations(part, mode)
    if limit is None:
        return None
    linked = kept_at(part, "halves", cache)
    kept = linked.direct()
    images = None if kept is None else Images.unpacked(kept)
    if images is not None or not trace:
        return Hoisted(part, vector, linked, images)
    program = None if limit < math.inf and linked.too_large else program_within(part, limit, linked)
    traced = None if program is None else program.halves(vector)
    if traced is None or not traced[0].outputs[0].size:  # too large, or nothing is shared
        return None
    return Hoisted(part, vector, linked, traced=traced)
