"""Kernels of the GPU engine compiled by NVRTC, which needs no GPU: cache, errors, reports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from robodyn.compile.cache import ObjectCache
from robodyn.engines.gpu import compiler
from robodyn.engines.gpu.compiler import Cubin, CupyNvrtc, Report, compile_cubin, compile_reported, cubin_key
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.errors import UnavailableError


def _missing() -> str:
    try:
        compiler.nvrtc()
    except UnavailableError as error:
        return str(error)
    return ""


compiles = pytest.mark.skipif(bool(_missing()), reason=_missing())


def tiny(text: str = "y[rows] = x[rows];", name: str = "tiny") -> KernelSource:
    head = f'extern "C" __global__ void {name}(const float* x, float* y, float* workspace, long long rows)'
    return KernelSource(name, f"{head} {{ {text} }}\n", np.dtype(np.float32), ("x",), ("y",))


@compiles
def test_gpu_compiler_keeps_what_it_compiled(tmp_path, monkeypatch):
    kept, source = ObjectCache(tmp_path / "objects"), tiny()
    code = compile_cubin(source, "sm_90", kept)
    assert [entry.label for entry in kept.entries()] == ["tiny float32 sm_90"]
    version = compiler.nvrtc().version()

    class Broken:
        def version(self):
            return version

        def compile(self, text, name, options):
            raise AssertionError("compiled again")

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "nvrtc", Broken)
        assert compile_cubin(source, "sm_90", kept) == code
        with pytest.raises(AssertionError, match="compiled again"):
            compile_cubin(source, "sm_80", kept)
        with pytest.raises(AssertionError, match="compiled again"):
            compile_cubin(source, "sm_90", ObjectCache(None))


def test_gpu_compiler_takes_what_nvrtc_kept(monkeypatch):
    """From 12.9 on it may have kept code, of which its log says nothing: reports are of code that is compiled anew."""
    log = "ptxas info    : Compiling entry function 'tiny' for 'sm_90'\nptxas info    : Function properties for tiny\n"
    log += "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 6 registers\n"

    class Keeps:
        seen = (12, 9)

        def version(self):
            return self.seen

        def compile(self, text, name, options):
            return b"code", log if "--no-cache" in options else ""

    monkeypatch.setattr(compiler, "_found", Keeps)
    assert compile_cubin(tiny(), "sm_90", ObjectCache(None)) == b"code"
    assert compile_reported(tiny(), "sm_90").report.registers == 6
    monkeypatch.setattr(Keeps, "seen", (12, 8))  # does not know the option
    with pytest.raises(UnavailableError, match="says nothing about a kernel 'tiny'"):
        compile_reported(tiny(), "sm_90")


@compiles
def test_gpu_compiler_keys(monkeypatch):
    """Whatever changes the code changes the key."""
    source = tiny()
    keys = [
        cubin_key(source, "sm_90"),
        cubin_key(source, "sm_80"),
        cubin_key(tiny("y[rows] = -x[rows];"), "sm_90"),
        cubin_key(replace(source, name="other"), "sm_90"),
    ]
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-lineinfo"))
    keys.append(cubin_key(source, "sm_90"))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 40 and int(key, 16) for key in keys)


@compiles
def test_gpu_compiler_in_threads():
    sources = [tiny(f"y[rows] = {k}.0f * x[rows];") for k in range(6)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda source: compile_reported(source, "sm_90"), sources))
    assert len({each.code for each in found}) == 6
    assert found[3] == compile_reported(sources[3], "sm_90")


@compiles
def test_gpu_compiler_says_what_is_wrong():
    with pytest.raises(UnavailableError, match=r"cannot compile tiny for sm_90:\n(.*\n)*.*undefined") as caught:
        compile_reported(tiny("y[rows] = nothing;"), "sm_90")
    assert str(caught.value).count("\n") <= 12
    with pytest.raises(UnavailableError, match="cannot compile tiny for sm_20"):
        compile_cubin(tiny(), "sm_20", ObjectCache(None))
    with pytest.raises(UnavailableError, match="'compute_90; rm' is no architecture such as 'sm_90'"):
        compile_reported(tiny(), "compute_90; rm")
    with pytest.raises(UnavailableError, match="says nothing about a kernel 'absent'"):
        compile_reported(replace(tiny(), name="absent"), "sm_90")


def test_gpu_compiler_that_is_not_there(monkeypatch):
    """What to install is said, both where NVRTC is missing and where it is too old."""
    monkeypatch.setattr(compiler, "_found", lambda: None)
    with pytest.raises(UnavailableError, match=r'NVRTC.* is not installed; pip install "\.\[gpu\]"'):
        compile_cubin(tiny(), "sm_90", ObjectCache(None))

    class Old:
        def version(self):
            return 11, 8

    monkeypatch.setattr(compiler, "_found", Old)
    with pytest.raises(UnavailableError, match=r'NVRTC 11\.8 is too old, wanted 12\.0 or newer; pip install "\.\[gpu'):
        compile_cubin(tiny(), "sm_90", ObjectCache(None))


class Binding:
    """CuPy's binding, as far as it is used, without CuPy."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self) -> None:
        self.alive: set[int] = set()

    def getVersion(self):
        return 13, 0

    def createProgram(self, text, name, headers, names):
        assert (name, headers, names) == ("k.cu", (), ())
        self.alive.add(id(text))
        self.text = text
        return id(text)

    def destroyProgram(self, program):
        self.alive.remove(program)

    def compileProgram(self, program, options):
        assert program in self.alive
        if "wrong" in self.text:
            raise self.NVRTCError("NVRTC_ERROR_COMPILATION (6)")

    def getCUBIN(self, program):
        return b"code of " + self.text.encode()

    def getProgramLog(self, program):
        return "" if "silent" in self.text else "log"


def test_gpu_compiler_through_cupy():
    """Programs are let go of, whatever happens; an error without a log speaks for itself."""
    binding = Binding()
    through = CupyNvrtc(binding)
    assert through.version() == (13, 0)
    assert through.compile("right", "k.cu", ()) == (b"code of right", "log")
    assert through.compile("wrong", "k.cu", ()) == (None, "log")
    assert through.compile("wrong, silent", "k.cu", ()) == (None, "NVRTC_ERROR_COMPILATION (6)")
    assert not binding.alive


@compiles
def test_gpu_compiler_through_cupy_itself():
    binding = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="no CuPy")
    options = ("-arch=sm_90", *compiler.OPTIONS)
    code, log = CupyNvrtc(binding).compile(tiny().text, "tiny.cu", options)
    assert code is not None
    assert compiler.read_report(log, "tiny").registers < 16
    assert CupyNvrtc(binding).compile("wrong", "tiny.cu", options)[0] is None


LOG = """\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     352 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 360 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 48.741 ms
ptxas info    : Function properties for _Z4partPfPKf
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_gpu_compiler_reads_reports():
    assert compiler.read_report(LOG, "k") == Report(registers=80, stack_bytes=360, spill_bytes=20, shared_bytes=1024)
    plain = LOG.replace(", 360 bytes cumulative stack size, 1024 bytes smem", "")
    assert compiler.read_report(plain, "k") == Report(registers=80, stack_bytes=352, spill_bytes=20, shared_bytes=0)
    for log, name in ((LOG, "other"), (LOG.replace("Used", "used"), "k"), ("", "k")):
        with pytest.raises(UnavailableError, match="says nothing about a kernel"):
            compiler.read_report(log, name)
    assert Cubin(b"", Report(1, 2, 3, 4)).report.spill_bytes == 3
