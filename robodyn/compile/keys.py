"""Keys of the cache, in two steps: from a request to a module's text, and from the text to machine code.

The first key is a hash of everything that determines the text: the request and every file of the package. Its entry is
a link, the digest of the text. The second key is a hash of everything that determines machine code: that digest, the
processor and the compiler. Changed sources therefore never give old code. If a change leaves the text as it is, the
text is made again, but its machine code comes from the cache.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache as remembered
from pathlib import Path
from typing import TypeAlias

import llvmlite
from llvmlite.binding import llvm_version_info

from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.jit import compile_object
from robodyn.compile.llvm.target import Target
from robodyn.internals import package
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass
from robodyn.internals.version import __version__

_PACKAGE = package.FOLDER.resolve()
_COMPILER = ("compile/llvm/jit.py", "compile/llvm/target.py")
"""Source files that translate texts into machine code; they are part of the second key."""
_KEY_BYTES, _DIGEST_BYTES = 20, 16

_TOO_LARGE = b"too large"
"""Stored in place of a link if a program is too large for one text, so that it is not traced again."""
_LINK = re.compile(rb"[0-9a-f]{%d}" % (2 * _DIGEST_BYTES))


def source_digests(package: Path) -> dict[str, str]:
    """A hash of every file below a package's folder, by relative path, except files compiled by Python.

    Empty if there are no files, for example if the package is in an archive.
    """
    digests = {}
    for name, entry in _files(package):
        digest = _digest_of(entry.path)
        if digest is not None:
            digests[name] = digest
    return digests


def _digest_of(path: str | Path) -> str | None:
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of Path.open
        return _digest(file.read())
    return None


def _files(folder: str | Path, before: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Relative paths (with slashes) and directory entries of the files below a folder. Takes a fifth of the time of
    `os.walk`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield before + entry.name, entry
            elif entry.name != "__pycache__" and not entry.is_symlink():
                yield from _files(entry.path, f"{before}{entry.name}/")


_Stamps: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
_SETTLED_NS = 2_000_000_000
"""Age from which a change of a file certainly gives it a new time stamp."""


@remembered
def _stamps(package: Path) -> _Stamps:
    """For every file: its name, and what a change alters: size, times in nanoseconds, and inode number."""
    stamps = []
    for name, entry in _files(package):
        with suppress(OSError):
            status = entry.stat()
            stamps.append((name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return tuple(sorted(stamps))


def _changed(stamps: _Stamps, since: float) -> bool:
    """Whether a file has changed since a time. Times in the future come from a wrong clock and are ignored."""
    first, now = since * 1e9, time.time_ns()
    return any(first < then <= now for _, _, *times, _ in stamps for then in times)


def _stamps_key(stamps: _Stamps) -> str | None:
    """The cache key of the files' hashes, or None if the stamps do not identify the contents. A file that has just
    changed may change again at the same time stamp, and only POSIX systems record the time of a change."""
    newest = max((max(times) for _, _, *times, _ in stamps), default=math.inf)
    settled = os.name == "posix" and newest < time.time_ns() - _SETTLED_NS
    return _key("sources", stamps) if settled else None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


@remembered
def _sources() -> dict[str, str]:
    """Hashes of the package's files, from the cache if it has an entry for their stamps. Reading all stamps takes some
    milliseconds; reading all files takes three times as long."""
    cache, key = ObjectCache.from_environment(), _stamps_key(_stamps(_PACKAGE))
    known = None if key is None else cache.get(key)
    if known is not None:
        with suppress(ValueError):
            return dict(json.loads(known))
    digests = source_digests(_PACKAGE)
    _stamps.cache_clear()  # a file may have changed between its stamp and its reading
    if key is not None and key == _stamps_key(_stamps(_PACKAGE)):
        cache.put(key, json.dumps(digests).encode(), "sources of robodyn")
    return digests


@remembered
def _generator() -> str:
    """A hash of the code that prints models as texts. A package without files is identified by its version.

    If files have changed since this process imported them, its texts do not come from those files. A random number then
    keeps other processes from using its links.
    """
    sources = sorted(_sources().items())
    private = os.urandom(_DIGEST_BYTES) if _changed(_stamps(_PACKAGE), package.IMPORTED_AT) else b""
    return _digest(repr((__version__, sources, private)).encode())


@remembered
def _compiler() -> str:
    """A hash of the code that translates texts into machine code."""
    files = [_digest_of(_PACKAGE / name) or __version__ for name in _COMPILER]
    return _digest(repr((files, llvmlite.__version__, tuple(llvm_version_info))).encode())


def _key(*facts: object) -> str:
    return hashlib.blake2b(repr(facts).encode(), digest_size=_KEY_BYTES).hexdigest()


def _processor(target: Target) -> tuple[str, ...]:
    return target.triple, target.cpu, target.features, target.level, *(("narrow",) if target.narrow else ())


def link_key(facts: str, target: Target) -> str:
    """The key of a text's digest: 40 hexadecimal digits, a hash of everything that determines the text.

    Args:
        facts: hash of the request.
        target: the processor for which the text is made.
    """
    return _key("link", facts, _processor(target), _generator())


def object_key(text: str, target: Target, opt: int) -> str:
    """The key of a module's machine code: 40 hexadecimal digits, a hash of everything that determines the code.

    Args:
        text: hash of the module's text.
        target: the processor for which the text is compiled.
        opt: level of the code generator.
    """
    return _key("object", text, _processor(target), opt, _compiler())


_PRINTED: dict[str, str] = {}


def printed(facts: object, make: Callable[[], str]) -> str:
    """A text from the cache, or else made and added to the cache. Worthwhile for texts that take some milliseconds to
    make.

    Args:
        facts: everything that determines the text besides the package; its repr is part of the key.
        make: makes the text.
    """
    name = repr(facts)
    if name not in _PRINTED:
        cache = ObjectCache.from_environment()
        key = _key("text", name, _generator()) if cache.problem() is None else None
        kept = None if key is None else cache.get(key)
        if kept is not None:
            with suppress(UnicodeDecodeError):
                _PRINTED[name] = kept.decode()
        if name not in _PRINTED:
            _PRINTED[name] = make()
            if key is not None:
                cache.put(key, _PRINTED[name].encode(), "robodyn text")
    return _PRINTED[name]


def compiled(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> bytes:
    """Machine code of a module, from the cache, or else compiled and added to the cache.

    Args:
        text: the module in LLVM's language.
        label: a description for people who look at the cache, such as "arm7 aba_q_qd_tau float64 avx512".
        target: the processor to compile for.
        opt: level of the code generator, 0 to 3.
        cache: the cache.

    Raises:
        UnavailableError: LLVM cannot compile the module.
    """
    wait = _BEGUN.pop((text, target, opt, cache.folder), None)
    return _found_or_compiled(text, label, target, opt, cache) if wait is None else wait()


_BEGUN: dict[tuple[str, Target, int, Path | None], Callable[[], bytes]] = {}
"""Compilations that `begin` started and whose code nobody has asked for yet."""


def begin(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> None:
    """Start to compile in another thread. A later call of `compiled` with the same arguments returns the code."""
    request = text, target, opt, cache.folder
    if request not in _BEGUN:
        code = kept(text, target, opt, cache)
        _BEGUN[request] = begun(code, lambda: _found_or_compiled(text, label, target, opt, cache))


def _found_or_compiled(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> bytes:
    if cache.problem() is not None:
        return compile_object(text, target, opt)
    key = object_key(_digest(text.encode()), target, opt)
    code = cache.get(key)
    if code is None:
        code = compile_object(text, target, opt)
        cache.put(key, code, label)
    return code


def memory_is_limited() -> bool:
    """Whether a resource limit restricts the memory of this process."""
    try:
        import resource
    except ImportError:  # not on this system
        return False
    kinds = [getattr(resource, name) for name in ("RLIMIT_AS", "RLIMIT_DATA") if hasattr(resource, name)]
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def compiling(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> Callable[[], bytes]:
    """Start to compile in another thread; the function returned gives the code as `compiled` does. See `begun`."""
    return begun(kept(text, target, opt, cache), lambda: compiled(text, label, target, opt, cache))


def kept(text: str, target: Target, opt: int, cache: ObjectCache) -> bytes | None:
    """Machine code of a module from the cache, or None."""
    return cache.get(object_key(_digest(text.encode()), target, opt)) if cache.problem() is None else None


def begun(code: bytes | None, make: Callable[[], bytes]) -> Callable[[], bytes]:
    """A function that returns `code`, or else the code that `make` makes in another thread, which starts now. LLVM
    releases Python's global lock while it works.

    If memory is limited, no thread starts and the function is `make`: LLVM aborts the process if a new thread of its
    own gets no memory.
    """
    if code is not None:
        return lambda: code
    if memory_is_limited():
        return make
    finished: list[bytes] = []

    def work() -> None:
        with suppress(UnavailableError, MemoryError):  # the caller of `wait` gets the error from `make`
            finished.append(make())

    def wait() -> bytes:
        thread.join()
        return finished[0] if finished else make()

    thread = threading.Thread(target=work, name="robodyn: code begun", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # the system has no thread left
        return make
    return wait


@dataclass(frozen=True)
class Linked:
    """Machine code of a module that a link finds in the cache without making the module's text.

    `facts`: hash of the request; the other attributes are as for `compiled`.
    """

    facts: str
    label: str
    target: Target
    opt: int
    cache: ObjectCache

    @cached_property
    def _key(self) -> str:
        return link_key(self.facts, self.target)

    def _link(self) -> bytes | None:
        return self.cache.get(self._key) if self.cache.problem() is None else None

    def code(self) -> bytes | None:
        """The machine code from the cache, or None."""
        text = self._link()
        if text is None or not _LINK.fullmatch(text):
            return None
        return self.cache.get(object_key(text.decode(), self.target, self.opt))

    def compiled(self, text: str) -> bytes:
        """The machine code of this text, from the cache or compiled. Adds the link to the cache.

        Raises:
            UnavailableError: LLVM cannot compile the module.
        """
        code = compiled(text, self.label, self.target, self.opt, self.cache)
        self._put(_digest(text.encode()).encode(), "link")
        return code

    def code_of(self, text: Callable[[], str]) -> Callable[[], bytes]:
        """A function that returns the cached machine code, or else that of `text`, which is called only then. See
        `begun`.

        Raises:
            UnavailableError: LLVM cannot compile the module; raised by the function returned.
        """
        return begun(self.code(), lambda: self.compiled(text()))

    @cached_property
    def _direct_key(self) -> str:
        return _key("direct", self.facts, _processor(self.target), _generator())

    def direct(self) -> bytes | None:
        """Machine code stored under the request's own key, without a link; for code that is cheap to make again."""
        return self.cache.get(self._direct_key) if self.cache.problem() is None else None

    def keep(self, code: bytes) -> None:
        """Store machine code for `direct`."""
        if self.cache.problem() is None:
            self.cache.put(self._direct_key, code, self.label)

    @property
    def too_large(self) -> bool:
        """Whether the cache records that the program is too large for one text."""
        return self._link() == _TOO_LARGE

    def mark_too_large(self) -> None:
        """Record in the cache that the program is too large for one text."""
        self._put(_TOO_LARGE, "too large")

    def _put(self, content: bytes, what: str) -> None:
        if self.cache.problem() is None:
            self.cache.put(self._key, content, f"{self.label}: {what}")
