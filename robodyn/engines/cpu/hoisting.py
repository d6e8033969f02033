"""An algorithm at every unit vector as two programs: the operations that do not depend on the unit vector are hoisted.

At least half of the operations of a second derivative along a vector do not depend on the vector. Full second
derivatives are such derivatives along all unit vectors, which are the lanes of SIMD vectors. One program would repeat
the shared operations in every lane. So a first program computes them once per state and stores some hundreds or
thousands of scalars. The second program reads them as broadcast operands, like constants. This requires AVX-512; other
processors, and LLVM's code, run one program at all unit vectors.
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
"""Inputs of each program that are the same in all lanes."""
_MAGIC = b"RDhalf\0\1"
_HEAD = struct.Struct("<8s2q")


@dataclass(frozen=True)
class Images:
    """Machine code of both programs, and the number of scalars that the first one stores."""

    shared: int
    first: bytes
    second: bytes

    def packed(self) -> bytes:
        """Both images as stored in the cache."""
        return _HEAD.pack(_MAGIC, self.shared, len(self.first)) + self.first + self.second

    @staticmethod
    def unpacked(kept: bytes) -> Images | None:
        """The inverse of `packed`; None for other bytes."""
        if len(kept) < _HEAD.size:
            return None
        magic, shared, size = _HEAD.unpack_from(kept)
        if magic != _MAGIC or shared <= 0 or not 0 <= size <= len(kept) - _HEAD.size:
            return None
        images = Images(shared, kept[_HEAD.size : _HEAD.size + size], kept[_HEAD.size + size :])
        return images if Image.unpacked(images.first) and Image.unpacked(images.second) else None


@dataclass(frozen=True)
class Hoisted:
    """The two programs for a request at unit vectors of the input `vector`. `linked`: identifies their code in the
    cache; `images`: the cached code; `traced`: the programs, if no code is cached."""

    request: Request
    vector: str
    linked: Linked
    images: Images | None = None
    traced: tuple[Program, Program] | None = None

    @property
    def requests(self) -> tuple[Request, Request]:
        """The requests of both programs: for one state, and for a vector of unit vectors."""
        return self.request.for_one_state, self.request

    def programs(self) -> tuple[Program, Program]:
        """Both programs, traced if necessary."""
        return self.traced or self.request.trace().halves(self.vector)

    def _code(self, program: Program, k: int) -> Assembled:
        """Generate machine code of the k-th program."""
        asked = self.requests[k]
        return assembled(program, asked.dtype, asked.target, spread=_SPREADS[k])

    @no_collection()
    def made(self) -> Images:
        """The code of both programs, generated and added to the cache if necessary."""
        if self.images is not None:
            return self.images
        programs = self.programs()
        codes = (self._code(program, k).image().packed() for k, program in enumerate(programs))
        images = Images(programs[0].outputs[0].size, *codes)
        self.linked.keep(images.packed())
        return images

    def listing(self, k: int) -> str:
        """Assembly listing of the k-th program."""
        return self._code(self.programs()[k], k).listing()

    def module(self, k: int) -> str:
        """LLVM module of the k-th program."""
        return replace(self.requests[k], vectors=_SPREADS[k]).unrolled_module(self.programs()[k])


def find_hoisted(request: Request, mode: str, cache: ObjectCache, *, trace: bool = True) -> Hoisted | None:
    """The two programs for a request at every unit vector; None if it is compiled differently.

    Args:
        request: the request.
        mode: as for `find_route`.
        cache: the cache, which also knows programs that are too large.
        trace: True if programs may be traced when no code is cached.
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
    cached = linked.direct()
    images = None if cached is None else Images.unpacked(cached)
    if images is not None or not trace:
        return Hoisted(part, vector, linked, images)
    program = None if limit < math.inf and linked.too_large else program_within(part, limit, linked)
    traced = None if program is None else program.halves(vector)
    if traced is None or not traced[0].outputs[0].size:  # too large, or without shared operations
        return None
    return Hoisted(part, vector, linked, traced=traced)
