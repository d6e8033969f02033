"""Keys of the cache: from what is asked for to the text of a module, and from the text to machine code.

The first key is made of all that determines a text: what is asked for, and every file of the package. Under it there is
a link, the digest of the text. The second is made of all that determines machine code: that digest, the processor and
the compiler. So no code outlives a change of what it was made from, and a change that leaves the text as it was
compiles nothing: the text is made again, and its code is there.
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
"""Files that turn a text into machine code: they count for it besides the text."""
_KEY_BYTES, _DIGEST_BYTES = 20, 16

_TOO_LARGE = b"too large"
"""Stands in the place of a link where no text is wanted, so that what is too large for one is not traced again."""
_LINK = re.compile(rb"[0-9a-f]{%d}" % (2 * _DIGEST_BYTES))


def source_digests(package: Path) -> dict[str, str]:
    """A hash of every file below a package's folder, by its name there, but for what Python compiled.

    Nothing where there are no files, as in an archive.
    """
    found = {}
    for name, entry in _files(package):
        digest = _digest_of(entry.path)
        if digest is not None:
            found[name] = digest
    return found


def _digest_of(path: str | Path) -> str | None:
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of Path.open
        return _digest(file.read())
    return None


def _files(folder: str | Path, before: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Names below a folder, with slashes between their parts, and where they are; a fifth of the time of `os.walk`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield before + entry.name, entry
            elif entry.name != "__pycache__" and not entry.is_symlink():
                yield from _files(entry.path, f"{before}{entry.name}/")


_Stamps: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
_SETTLED_NS = 2_000_000_000
"""Age of a change from which another one has another time."""


@remembered
def _stamps(package: Path) -> _Stamps:
    """Of every file: its name, and what changes with it: size, times in nanoseconds, and number."""
    found = []
    for name, entry in _files(package):
        with suppress(OSError):
            status = entry.stat()
            found.append((name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return tuple(sorted(found))


def _changed(stamps: _Stamps, since: float) -> bool:
    """Whether a file has changed since a time. What lies in the future is a clock's fault and says nothing."""
    first, now = since * 1e9, time.time_ns()
    return any(first < then <= now for _, _, *times, _ in stamps for then in times)


def _stamps_key(stamps: _Stamps) -> str | None:
    """The key of the hashes of files, None where their stamps do not tell them from what they may be next: what has
    just changed may change again in the same instant, and other systems than POSIX's have no time of it."""
    newest = max((max(times) for _, _, *times, _ in stamps), default=math.inf)
    settled = os.name == "posix" and newest < time.time_ns() - _SETTLED_NS
    return _key("sources", stamps) if settled else None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


@remembered
def _sources() -> dict[str, str]:
    """Hashes of the package's files: from the cache if it knows files with these stamps, or else read. It takes some
    milliseconds to look at all files, and three times as long to read them."""
    cache, key = ObjectCache.from_environment(), _stamps_key(_stamps(_PACKAGE))
    known = None if key is None else cache.get(key)
    if known is not None:
        with suppress(ValueError):
            return dict(json.loads(known))
    found = source_digests(_PACKAGE)
    _stamps.cache_clear()  # what changes before it is read must not be taken for what it was
    if key is not None and key == _stamps_key(_stamps(_PACKAGE)):
        cache.put(key, json.dumps(found).encode(), "sources of robodyn")
    return found


@remembered
def _generator() -> str:
    """A hash of what turns models into texts. A package without files has a version, which must do.

    Where files changed after this process imported them, they are not what makes its texts: its links are of no use to
    others then.
    """
    sources = sorted(_sources().items())
    mine = os.urandom(_DIGEST_BYTES) if _changed(_stamps(_PACKAGE), package.IMPORTED_AT) else b""
    return _digest(repr((__version__, sources, mine)).encode())


@remembered
def _compiler() -> str:
    """A hash of what turns texts into machine code."""
    ours = [_digest_of(_PACKAGE / name) or __version__ for name in _COMPILER]
    return _digest(repr((ours, llvmlite.__version__, tuple(llvm_version_info))).encode())


def _key(*facts: object) -> str:
    return hashlib.blake2b(repr(facts).encode(), digest_size=_KEY_BYTES).hexdigest()


def _processor(target: Target) -> tuple[str, ...]:
    return target.triple, target.cpu, target.features, target.level, *(("narrow",) if target.narrow else ())


def link_key(facts: str, target: Target) -> str:
    """The key of a text's digest, 40 hexadecimal digits, from everything that determines the text.

    Args:
        facts: hash of what is asked for.
        target: the processor that it is for.
    """
    return _key("link", facts, _processor(target), _generator())


def object_key(text: str, target: Target, opt: int) -> str:
    """The key of the machine code of a module, 40 hexadecimal digits, from everything that determines the code.

    Args:
        text: hash of the module's text.
        target: the processor compiled for.
        opt: level of the code generator.
    """
    return _key("object", text, _processor(target), opt, _compiler())


_PRINTED: dict[str, str] = {}


def printed(facts: object, make: Callable[[], str]) -> str:
    """A text that takes some milliseconds to make: from the cache, or made and then kept there.

    Args:
        facts: what determines the text besides the package: its repr says all of it.
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
    """Machine code of a module: from the cache, or compiled and then kept there.

    Args:
        text: the module in LLVM's language.
        label: what it is, for people who look at the cache, such as "arm7 aba_q_qd_tau float64 avx512".
        target: the processor to compile for.
        opt: level of the code generator, 0 to 3.
        cache: where to look and to keep.

    Raises:
        UnavailableError: LLVM cannot compile the module.
    """
    wait = _BEGUN.pop((text, target, opt, cache.folder), None)
    return _found_or_compiled(text, label, target, opt, cache) if wait is None else wait()


_BEGUN: dict[tuple[str, Target, int, Path | None], Callable[[], bytes]] = {}
"""What is being compiled and was not asked for yet."""


def begin(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> None:
    """Begin to compile in another thread what `compiled` will be asked for."""
    what = text, target, opt, cache.folder
    if what not in _BEGUN:
        code = kept(text, target, opt, cache)
        _BEGUN[what] = begun(code, lambda: _found_or_compiled(text, label, target, opt, cache))


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
    """Whether this process may have less memory than there is."""
    try:
        import resource
    except ImportError:  # not on this system
        return False
    kinds = [getattr(resource, name) for name in ("RLIMIT_AS", "RLIMIT_DATA") if hasattr(resource, name)]
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def compiling(text: str, label: str, target: Target, opt: int, cache: ObjectCache) -> Callable[[], bytes]:
    """What `compiled` gives, once it is called for: see `begun`."""
    return begun(kept(text, target, opt, cache), lambda: compiled(text, label, target, opt, cache))


def kept(text: str, target: Target, opt: int, cache: ObjectCache) -> bytes | None:
    """What the cache has of a module."""
    return cache.get(object_key(_digest(text.encode()), target, opt)) if cache.problem() is None else None


def begun(code: bytes | None, make: Callable[[], bytes]) -> Callable[[], bytes]:
    """Code that is there, or that is being made, once it is called for: another thread begins, for LLVM leaves Python
    to others while it works.

    Not where memory is limited: what a new thread of LLVM's lacks ends the process.
    """
    if code is not None:
        return lambda: code
    if memory_is_limited():
        return make
    found: list[bytes] = []

    def work() -> None:
        with suppress(UnavailableError, MemoryError):  # who asks for the code gets them
            found.append(make())

    def wait() -> bytes:
        thread.join()
        return found[0] if found else make()

    thread = threading.Thread(target=work, name="robodyn: code begun", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # the system grants no thread
        return make
    return wait


@dataclass(frozen=True)
class Linked:
    """Machine code of a module whose text need not be made to find it.

    `facts`: hash of what is asked for; the others as for `compiled`.
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
        """What the cache has, or None."""
        text = self._link()
        if text is None or not _LINK.fullmatch(text):
            return None
        return self.cache.get(object_key(text.decode(), self.target, self.opt))

    def compiled(self, text: str) -> bytes:
        """The code of this text, found or compiled, and linked from now on.

        Raises:
            UnavailableError: LLVM cannot compile the module.
        """
        code = compiled(text, self.label, self.target, self.opt, self.cache)
        self._put(_digest(text.encode()).encode(), "link")
        return code

    def code_of(self, text: Callable[[], str]) -> Callable[[], bytes]:
        """What the cache has, or else the code of a text, which is made only then: see `begun`.

        Raises:
            UnavailableError: LLVM cannot compile the module; from what is returned.
        """
        return begun(self.code(), lambda: self.compiled(text()))

    @cached_property
    def _direct_key(self) -> str:
        return _key("direct", self.facts, _processor(self.target), _generator())

    def direct(self) -> bytes | None:
        """Code that was kept under the first key itself, because to make it again costs next to nothing."""
        return self.cache.get(self._direct_key) if self.cache.problem() is None else None

    def keep(self, code: bytes) -> None:
        """Have it there from now on."""
        if self.cache.problem() is None:
            self.cache.put(self._direct_key, code, self.label)

    @property
    def too_large(self) -> bool:
        """Whether it is known that there shall be no text."""
        return self._link() == _TOO_LARGE

    def mark_too_large(self) -> None:
        """Know it from now on."""
        self._put(_TOO_LARGE, "too large")

    def _put(self, content: bytes, what: str) -> None:
        if self.cache.problem() is None:
            self.cache.put(self._key, content, f"{self.label}: {what}")
