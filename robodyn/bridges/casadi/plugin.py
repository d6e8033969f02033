"""Functions of CasADi from compiled C: a shared library with CasADi's interface of external functions.

The C compiler compiles the C of `robodyn.compile.c`, and functions around it that describe names and sparsities. CasADi
finds derivatives in the library by name. Libraries are kept in the cache of compiled code.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import casadi

from robodyn.bridges.casadi.blocks import Level, Matrix
from robodyn.bridges.casadi.expressions import sparsity
from robodyn.compile.c.code import Function, c_source
from robodyn.compile.cache import ObjectCache
from robodyn.internals import forks
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.internals.tuning import CASADI_OPTIMISED

_FLAGS = ("-std=c99", "-fPIC")
_SHOWN = 500
_LOCK = forks.lock()
_FOLDERS: dict[int, Path] = {}


def compiler() -> str | None:
    """The path of the C compiler: that of the environment variable CC, or gcc, or cc."""
    named = os.environ.get("CC")
    return shutil.which(named) if named else shutil.which("gcc") or shutil.which("cc")


def compiled_function(name: str, levels: Sequence[Level]) -> casadi.Function:
    """The first of `levels`, whose derivatives are the others.

    Raises:
        UnavailableError: there is no C compiler, it fails, or its files cannot be written.
    """
    sources = tuple((_source(each), _optimised(each)) for each in levels)
    with _LOCK:
        try:
            return casadi.external(name, str(_library(sources)))
        except OSError as error:
            raise UnavailableError(f"way: 'compiled' needs a C compiler and files in a folder: {error}") from error


def require_compiler() -> str:
    """The path of the C compiler.

    Raises:
        UnavailableError: there is none.
    """
    path = compiler()
    if path is None:
        named = os.environ.get("CC")
        missing = f"CC={quoted(named)} is not found" if named else "neither gcc nor cc is found"
        raise UnavailableError(f"way: 'compiled' needs a C compiler, and {missing}; way='sx' needs none")
    return path


def _optimised(level: Level) -> str:
    """The compiler's option: code without optimisation takes a third longer, and compiles in a quarter of the time."""
    return "-O1" if level.program.operations <= CASADI_OPTIMISED else "-O0"


def _library(sources: tuple[tuple[str, str], ...]) -> Path:
    """The path of the shared library of C files, each with an option; from the cache if they were compiled before."""
    path, kept = require_compiler(), ObjectCache.from_environment()
    told = subprocess.run([path, "--version"], capture_output=True, check=False).stdout
    key = hashlib.blake2b(repr((path, told, _FLAGS, sources)).encode(), digest_size=16).hexdigest()
    library = _folder() / f"{key}.so"
    if library.is_file():  # it may be loaded: a file that is written to again would crash this process
        return library
    code = kept.get(key)
    if code is None:
        _compile(path, sources, library)
        kept.put(key, library.read_bytes(), "a plugin of CasADi")
    else:
        part = library.with_suffix(".part")
        part.write_bytes(code)
        part.replace(library)
    return library


def _compile(path: str, sources: Sequence[tuple[str, str]], library: Path) -> None:
    """Compile C files at the same time, and link them."""
    running, objects = [], []
    for k, (text, option) in enumerate(sources):
        source = library.with_suffix(f".{k}.c")
        source.write_text(text, encoding="ascii")
        objects.append(source.with_suffix(".o"))
        command = [path, *_FLAGS, option, "-c", str(source), "-o", str(objects[-1])]
        running.append((source, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)))
    said = [(process.communicate()[0], process.returncode) for _, process in running]
    if not any(code for _, code in said):
        link = [path, "-shared", *map(str, objects), "-o", str(library), "-lm"]
        done = subprocess.run(link, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        said.append((done.stdout, done.returncode))
    for each in (*objects, *(source for source, _ in running)):
        each.unlink(missing_ok=True)
    for output, code in said:
        if code:
            message = output.decode(errors="replace").strip()[:_SHOWN]
            raise UnavailableError(f"{path} failed with exit status {code}: {message}")
    if not library.is_file():
        raise UnavailableError(f"{path} wrote no library; wanted a C compiler")


def _folder() -> Path:
    """A folder of this process for libraries, a new one if it is gone, as some systems remove old files. After a fork
    it is another one, in that of the parent, which removes both: many forked processes end without doing so."""
    process = os.getpid()
    if process not in _FOLDERS or not _FOLDERS[process].is_dir():
        above = next((str(each) for each in _FOLDERS.values() if each.is_dir()), None)
        _FOLDERS[process] = Path(tempfile.mkdtemp(prefix="robodyn_casadi_", dir=above))
        atexit.register(_remove, process)
    return _FOLDERS[process]


def _remove(process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(_FOLDERS[process], ignore_errors=True)


def _source(level: Level) -> str:
    """The C of one function: its statements, and what CasADi asks about it."""
    program, core = level.program, f"{level.name}_core"
    text = c_source([Function(core, program)], prefix=level.name, sizes={})
    patterns = {name: f"{level.name}_s{k}" for k, name in enumerate((*level.inputs, *level.outputs))}
    matrices = {**level.inputs, **level.outputs}
    listed = "".join(
        f"static const casadi_int {patterns[name]}[] = {{{_compressed(each)}}};\n" for name, each in matrices.items()
    )
    sizes = [len(each.places) for each in level.outputs.values()]
    zeros = max((len(each.places) for each in level.inputs.values()), default=0)
    arguments = [f"arg[{k}] ? arg[{k}] : zeros" for k in range(len(level.inputs))]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    arguments += [f"res[{k}] ? res[{k}] : w + {start}" for k, start in enumerate(starts)]
    call = ",\n        ".join(arguments)
    named = "".join(
        _asked(f"const char *{level.name}_name_{side}", [f'"{name}"' for name in group])
        + _asked(f"const casadi_int *{level.name}_sparsity_{side}", [patterns[name] for name in group])
        + f"casadi_int {level.name}_n_{side}(void) {{ return {len(group)}; }}\n"
        for side, group in (("in", level.inputs), ("out", level.outputs))
    )
    return f"""{text}
#define casadi_int long long
{listed}
int {level.name}(const double **arg, double **res, casadi_int *iw, double *w, int mem)
{{
    static const double zeros[{max(1, zeros)}] = {{0.0}};
    (void)iw, (void)w, (void)mem, (void)zeros;
    {core}(
        {call});
    return 0;
}}
{named}
int {level.name}_work(casadi_int *sz_arg, casadi_int *sz_res, casadi_int *sz_iw, casadi_int *sz_w)
{{
    if (sz_arg) *sz_arg = {len(level.inputs)};
    if (sz_res) *sz_res = {len(level.outputs)};
    if (sz_iw) *sz_iw = 0;
    if (sz_w) *sz_w = {sum(sizes)};
    return 0;
}}
"""


def _asked(head: str, answers: Sequence[str]) -> str:
    """A function from a number to an answer."""
    cases = "".join(f"    case {k}: return {answer};\n" for k, answer in enumerate(answers))
    return f"{head}(casadi_int i)\n{{\n    switch (i) {{\n{cases}    default: return 0;\n    }}\n}}\n"


def _compressed(matrix: Matrix) -> str:
    """A pattern as CasADi writes it: numbers of rows and columns, starts of columns, rows."""
    return ", ".join(map(str, sparsity(matrix).compress()))
