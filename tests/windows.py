"""A program that has less of Python than there is here, as on Windows, and asks robots questions then.

    python windows.py MODELS FOLDER

with the folder of models, and one to write in.

Taken away before robodyn is imported: what the modules os, signal, mmap and socket lack on Windows; the modules fcntl,
resource, pwd, grp and termios; `ctypes.CDLL(None)`, and C's library in `ctypes.pythonapi`; folders that are opened as
files; /proc and /sys. `sys.platform` is "win32" and `os.name` "nt". What Windows has in their place is there in the
measure that robodyn uses it: `ctypes.cdll.msvcrt` and `GlobalMemoryStatusEx`.

That is all. The machine code that runs is that of this system, by its calling convention; so are its paths, permissions
and locks of files; packages other than robodyn were imported before and are those of this system.
"""

from __future__ import annotations

import builtins
import concurrent.futures
import ctypes
import io
import mmap
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import uuid

import llvmlite.binding
import numpy as np
import platformdirs
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.spatial.transform

BEFORE = (concurrent.futures, platformdirs, random, scipy, tempfile, threading, uuid)
"""Imported as they are here."""

OS = """
    chown chroot confstr ctermid fchdir fchmod fchown fork forkpty getegid geteuid getgid getgrouplist getgroups
    getloadavg getpgid getpgrp getpriority getresgid getresuid getsid getuid getxattr initgroups killpg lchown
    listxattr lockf major makedev minor mkfifo mknod nice pathconf pipe2 posix_fadvise posix_fallocate
    posix_spawn pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_getparam
    sched_setaffinity sched_yield sendfile setegid seteuid setgid setpgid setsid setuid statvfs sync sysconf
    tcgetpgrp ttyname uname wait wait3 wait4 waitid writev O_ACCMODE O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY
    O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_NDELAY O_PATH O_SYNC O_TMPFILE WNOHANG WIFEXITED WEXITSTATUS P_PID
    SCHED_OTHER F_LOCK memfd_create eventfd
"""
SIGNAL = """
    SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU
    SIGUSR1 SIGUSR2 SIGVTALRM SIG_BLOCK SIG_UNBLOCK SIG_SETMASK alarm getitimer setitimer pause pthread_kill
    pthread_sigmask sigpending sigtimedwait sigwait sigwaitinfo siginterrupt
"""
MODULES = """
    fcntl resource pwd grp termios tty pty syslog
"""


def take_away():
    """Have no more than there is on Windows."""
    kept = Kept(ctypes.pythonapi, ctypes.CDLL(None))
    for module, names in ((os, OS), (signal, SIGNAL), (socket, "AF_UNIX")):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in [each for each in dir(mmap) if each.startswith(("MAP_", "PROT_", "MADV_"))]:
        delattr(mmap, name)
    sys.modules.update(dict.fromkeys(MODULES.split()))
    for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
        setattr(os, name, set())
    kept.put()
    take_away_folders()
    sys.platform, os.name = "win32", "nt"
    pathlib.WindowsPath = pathlib.PosixPath


class Kept:
    """Libraries as ctypes knows them there."""

    def __init__(self, python, library):
        loaded = ctypes.CDLL

        class PythonsOwn(ctypes.PyDLL):
            def __getattr__(self, name):
                if not name.startswith(("Py", "_Py")):
                    raise AttributeError(f"function {name!r} not found")
                return super().__getattr__(name)

        class Named(loaded):
            def __init__(self, name, *given, **options):
                if name is None:
                    raise TypeError("argument of type 'NoneType' is not iterable")
                super().__init__(name, *given, **options)

        self._python, self._named = PythonsOwn("python", handle=python._handle), Named
        self._c = loaded("msvcrt", handle=library._handle)

    def put(self):
        ctypes.pythonapi, ctypes.CDLL = self._python, self._named
        ctypes.PyDLL = None
        ctypes.cdll = type("Loader", (), {"msvcrt": self._c})()
        ctypes.windll = type("Loader", (), {"kernel32": Kernel()})()


class Kernel:
    """What is asked of Windows itself."""

    def GlobalMemoryStatusEx(self, pointer):
        status = pointer._obj
        assert status.length == ctypes.sizeof(status) == 64
        words = (ctypes.c_uint64 * 8).from_address(ctypes.addressof(status))
        words[1], words[2] = 8 << 30, 4 << 30  # all of the machine's memory, and what is available
        return 1


def take_away_folders():
    """Linux's own, and descriptors of folders."""
    there, opened, opened_file = os.open, open, io.open

    def hidden(path):
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(("/proc/", "/sys/"))

    def os_open(path, flags, mode=0o777, *, dir_fd=None):
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if hidden(path):
            raise FileNotFoundError(path)
        if pathlib.Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return there(path, flags, mode)

    def io_open(path, *given, **options):
        if hidden(path):
            raise FileNotFoundError(path)
        return opened_file(path, *given, **options)

    assert opened is opened_file
    os.open, os.O_BINARY = os_open, 0
    builtins.open = io.open = io_open


def close(found, wanted, dtype):
    scale = np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(found, wanted, atol=(1e-10 if dtype == "float64" else 1e-3) * scale, rtol=0)


def ask(rd, model, dtype):
    """Queries of single states and of batches, against another engine."""
    dyn = rd.Dynamics(model, dtype=dtype, compile="lazy", joint_forces=())
    reference = rd.Dynamics(model, engine="reference")
    rng = np.random.default_rng(3)
    for batch in ((), (300,)):
        q = model.random_configuration(3, batch)
        qd, last = rng.normal(size=(2, *batch, model.nv))
        close(dyn.inverse_dynamics(q, qd, last), reference.inverse_dynamics(q, qd, last), dtype)
        close(dyn.forward_dynamics(q, qd, last), reference.forward_dynamics(q, qd, last), dtype)
        close(dyn.forward_kinematics(q), reference.forward_kinematics(q), dtype)
        close(dyn.mass_matrix(q), reference.mass_matrix(q), dtype)
    return dyn


def move(dyn):
    run = dyn.rollout(np.zeros((70, 2)), np.full((70, 2), 0.1), dt=1e-3, steps=20)
    assert np.isfinite(run.q).all() and np.abs(run.q[-1]).max() > 1e-4


def ask_more(rd, robots, model):
    """Single precision, other robots, a solver of poses, loops, several threads."""
    move(ask(rd, model, "float32"))
    ask(rd, rd.load_urdf(robots / "satellite.urdf"), "float64")

    arm = rd.load_urdf(robots / "arm6.urdf")
    q = np.array([0.4, -0.9, 1.1, 0.3, 0.7, 0.2])
    wanted = rd.Dynamics(arm, engine="reference").link_pose(q, "tool0")
    found, report = rd.InverseKinematics(arm, ["tool0"]).solve(wanted[None], q0=q + 0.05)
    assert report.converged.all()
    close(rd.Dynamics(arm, engine="reference").link_pose(found, "tool0"), wanted, "float32")

    loop = rd.load_urdf(robots / "loops" / "four_bar.urdf")
    q = loop.assemble(np.array([np.pi / 3, -0.5, 1.5]), free=["elbow", "swing"])
    constrained, reference = rd.Dynamics(loop, compile="lazy"), rd.Dynamics(loop, engine="reference")
    for batch in ((), (70,)):
        state = np.broadcast_to(q, (*batch, 3)), np.zeros((*batch, 3)), np.ones((*batch, 3))
        for one, other in zip(
            constrained.constrained_forward_dynamics(*state),
            reference.constrained_forward_dynamics(*state),
            strict=True,
        ):
            close(one, other, "float64")

    many = model.random_configuration(5, 20_000)
    shared = rd.Dynamics(model, threads=3, compile="lazy").mass_matrix(many)
    close(shared, rd.Dynamics(model, engine="reference").mass_matrix(many), "float64")


def main(models, folder):
    take_away()
    import robodyn as rd

    for wrong in ("os.fork()", "import fcntl", "os.sysconf('SC_PAGE_SIZE')", "ctypes.CDLL(None)", "mmap.MAP_PRIVATE"):
        try:
            exec(wrong)
        except (AttributeError, ImportError, TypeError):
            continue
        raise AssertionError(f"{wrong} is there")
    robots = pathlib.Path(models)
    model = rd.load_urdf(robots / "cartpole.urdf")
    move(ask(rd, model, "float64"))
    ask_more(rd, robots, model)

    file = pathlib.Path(folder) / "model.npz"
    for _ in range(2):  # also over one that is there
        model.save(file)
        assert rd.Model.load(file) == model


if __name__ == "__main__":
    llvmlite.binding.get_process_triple()
    main(*sys.argv[1:])
