"""Clusters of processes: workers and schedulers that die, memory, threads, and code that is compiled once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.compile.cache import FOLDER_VARIABLE
from robodyn.distributed import Statistics
from robodyn.distributed import map as map_states

distributed = pytest.importorskip("distributed", reason="no Dask")
zarr = pytest.importorskip("zarr", reason="no zarr")

LOCAL = "127.0.0.1:0"


@pytest.fixture(scope="module")
def dyn():
    return rd.Dynamics(rd.load_urdf(own("arm7")))


@contextmanager
def cluster(workers=2, threads=1, memory="1GB", **config):
    """A client of a scheduler and workers in processes, each with a nanny that starts it again when it dies."""
    import dask

    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=threads, memory_limit=memory, dashboard_address=LOCAL
        ) as found,
        distributed.Client(found, set_as_default=False) as client,
    ):
        yield client


def slow(seconds):
    """Draws as usual, and takes its time."""

    def draw(rng, n):
        import time

        time.sleep(seconds)
        return {"q": rng.uniform(-1, 1, (n, 7)), "qd": rng.normal(size=(n, 7)), "tau": rng.normal(size=(n, 7))}

    return draw


def blocks_done(out):
    try:
        return int(zarr.open_group(str(out), mode="r")["done"][:].sum())
    except (FileNotFoundError, KeyError):
        return 0


def when_done(out, blocks, act):
    """A thread that acts once so many blocks are there."""

    def wait():
        end = time.monotonic() + 60
        while blocks_done(out) < blocks and time.monotonic() < end:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_worker_that_is_killed_is_replaced_and_no_bit_is_lost(dyn, tmp_path):
    seeds, chunk = range(20), 50
    wanted = map_states(dyn, "forward_dynamics", seeds, chunk=chunk, draw=slow(0.0))
    out = tmp_path / "r"
    with cluster() as client:
        pids = client.run(os.getpid)
        assert len(pids) == 2
        thread = when_done(out, 4, lambda: os.kill(next(iter(pids.values())), signal.SIGKILL))
        got = map_states(dyn, "forward_dynamics", seeds, chunk=chunk, client=client, out=out, draw=slow(0.1))
        thread.join()
        assert set(client.run(os.getpid).values()) != set(pids.values()), "nobody was killed"
    assert blocks_done(out) == 20 and np.array_equal(got[:], wanted)


@pytest.mark.extras
@pytest.mark.parametrize("kind", ("gathered", "reduced", "arrays"))
def test_killed_workers_and_every_way_to_return(dyn, kind, tmp_path):
    seeds, chunk, draw = range(24), 50, slow(0.1)
    rng = np.random.default_rng(31)
    arrays = [rng.normal(size=(2400, 7)) for _ in range(3)]
    given = {"gathered": (seeds,), "reduced": (seeds,), "arrays": arrays}[kind]
    options = {"chunk": chunk, **({} if kind == "arrays" else {"draw": draw})}
    if kind == "reduced":
        options["reduce"] = Statistics()
    wanted = map_states(dyn, "forward_dynamics", *given, **options)
    with cluster(3) as client:
        killer = threading.Timer(0.3, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids[:2]])
        pids = list(client.run(os.getpid).values())
        killer.start()
        got = map_states(dyn, "forward_dynamics", *given, client=client, **options)
        killer.join()
    assert repr(got) == repr(wanted) and (kind == "reduced" or np.array_equal(got, wanted))


@pytest.mark.extras
@pytest.mark.parametrize("reduce", (None, Statistics()), ids=("results", "values"))
def test_another_scheduler_goes_on_where_one_died(dyn, reduce, tmp_path):
    out, file = tmp_path / "r", tmp_path / "scheduler.json"
    given = dyn, "forward_dynamics", range(30)
    wanted = map_states(*given, chunk=50, draw=slow(0.0), reduce=reduce)
    options = {"chunk": 50, "out": out, "draw": slow(0.2), "reduce": reduce, "key": "slow"}
    scheduler = start("scheduler", file, "--port", "0")
    workers = [start("worker", file, "--nthreads", "1") for _ in range(2)]
    try:
        wait_for(file.exists)
        client = distributed.Client(scheduler_file=str(file), timeout="30s", set_as_default=False)
        client.wait_for_workers(2, timeout=60)
        thread = when_done(out, 5, scheduler.kill)
        with pytest.raises(rd.UnavailableError, match=r"client: the scheduler is gone.*another call goes on"):
            map_states(*given, client=client, **options)
        thread.join()
        client.close(timeout=2)
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    done = blocks_done(out)
    assert 5 <= done < 30
    with cluster() as client:
        begin = time.monotonic()
        got = map_states(*given, client=client, **options)
        took = time.monotonic() - begin
    assert took > 0.2 * (30 - done) / 2
    assert np.array_equal(got[:], wanted) if reduce is None else repr(got) == repr(wanted)


def start(what, file, *options):
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(file), *options]
    return subprocess.Popen([*command, "--dashboard-address", LOCAL], stderr=subprocess.DEVNULL)


def wait_for(there):
    end = time.monotonic() + 60
    while not there() and time.monotonic() < end:
        time.sleep(0.05)


@pytest.mark.extras
def test_workers_that_have_an_older_module_are_named(dyn, tmp_path, monkeypatch):
    """Functions of modules travel by name; a worker that imported one before it changed has the old one."""
    import importlib

    file = tmp_path / "changing_draws.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "SCALE = {}\ndef draw(rng, n):\n    return {{'q': SCALE * rng.normal(size=(n, 7))}}\n"
    file.write_text(source.format(1.0))
    import changing_draws

    def ask(client, **options):
        options |= {"chunk": 10, "client": client, "draw": changing_draws.draw, "out": tmp_path / "r"}
        return map_states(dyn, "gravity_force", range(3), **options)

    with cluster(1) as client:
        first = np.asarray(ask(client)[:])
        file.write_text(source.format(0.25))
        importlib.reload(changing_draws)
        with pytest.raises(rd.ArgumentError, match="draw was"):
            ask(client)
        with pytest.raises(rd.UnavailableError, match=r"^block \d .*: draw: on this worker it is not what it is where"):
            ask(client, resume=False)
    with cluster(1) as client:
        assert not np.array_equal(np.asarray(ask(client)[:]), first)


@pytest.mark.extras
def test_a_block_that_kills_its_workers_is_named(dyn):
    def deadly(rng, n):
        import os
        import signal

        q = rng.uniform(-1, 1, (n, 7))
        if q[0, 0] == first:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"q": q}

    first = np.random.default_rng(2).uniform(-1, 1, (10, 7))[0, 0]
    with (
        cluster(**{"distributed.scheduler.allowed-failures": 1}) as client,
        pytest.raises(rd.UnavailableError, match=r"^block \d .*: 2 workers died with it; too little memory"),
    ):
        map_states(dyn, "gravity_force", range(3), chunk=10, client=client, draw=deadly)


@pytest.mark.extras
def test_storage_that_is_not_shared_and_blocks_that_are_too_large_are_refused(dyn, tmp_path):
    def elsewhere(rng, n):
        """As if this worker's machine had another disk."""
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        return {"q": rng.uniform(-1, 1, (n, 7))}

    folder = str(tmp_path / "r")
    with cluster() as client:
        with pytest.raises(rd.UnavailableError, match=r"^out: workers have written, and nothing is there"):
            map_states(dyn, "gravity_force", range(3), chunk=9, client=client, out=zarr.storage.MemoryStore())
        with pytest.raises(rd.UnavailableError, match=r"^block \d .*: out: .* wanted shared storage"):
            map_states(dyn, "gravity_force", range(3), chunk=9, client=client, out=folder, draw=elsewhere)
        too_large = r"^block \d .*: chunk: 9000000 states of 448 bytes .* 1000000000 bytes"
        with pytest.raises(rd.ArgumentError, match=too_large):
            map_states(dyn, "mass_matrix", range(3), chunk=9_000_000, client=client, reduce=len)
        most = 1_000_000_000 // (2 * 448)
        assert map_states(dyn, "mass_matrix", range(1), chunk=most, client=client, reduce=len) == [most]


@pytest.mark.extras
@pytest.mark.parametrize("workers, threads", ((1, 1), (2, 1), (1, 2), (3, 2)))
def test_threads_of_workers_are_no_more_than_processors(dyn, workers, threads):
    from dask.system import CPU_COUNT

    def of_blocks(tau):
        from robodyn.distributed.block import _PREPARED

        return [prepared._dyn.threads for prepared in _PREPARED.values()]

    with cluster(workers, threads) as client:
        (*found,) = map_states(dyn, "inverse_dynamics", range(12), chunk=5000, client=client, reduce=of_blocks)
    slots = workers * threads
    assert {count for each in found for count in each} == {max(1, CPU_COUNT // slots)}


@pytest.mark.extras
def test_a_machine_compiles_a_robot_once(dyn, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    (tmp_path / "objects").mkdir(mode=0o700)
    log = tmp_path / "compiled"

    def count():
        """Note every module that is compiled for a robot, and take some time over it."""
        import time

        from robodyn.compile.cache import ObjectCache

        put = ObjectCache.put

        def noted(self, key, data, label=""):
            with log.open("a") as file:
                file.write(f"{label}\n")
            time.sleep(0.1)
            put(self, key, data, label)

        ObjectCache.put = noted

    with cluster(4) as client:
        client.run(count)
        map_states(dyn, "forward_dynamics", range(12), chunk=200, client=client, draw=slow(0.05), reduce=len)
    labels = [line for line in log.read_text().splitlines() if "arm7" in line]
    assert labels and sorted(labels) == sorted(set(labels))


@pytest.mark.extras
def test_memory_stays_flat_over_many_states(dyn, tmp_path):
    """2e7 states have 4.5 GB of inputs and results; each of two workers has 1 GB."""

    def peak():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    with cluster() as client:
        peaks = []
        for seeds in (range(20), range(20, 200)):
            reducing = {"tau": Statistics(), "power": Statistics(of=lambda a: (a["tau"] * a["qd"]).sum(axis=1))}
            found = map_states(dyn, "inverse_dynamics", seeds, chunk=100_000, client=client, reduce=reducing)
            assert (found["tau"]["count"] == len(seeds) * 100_000).all()
            peaks.append(max(client.run(peak).values()))
    print(f"{peaks[0] / 1e6:.0f} MB after 2e6 states, {peaks[1] / 1e6:.0f} MB after 2e7")
    assert peaks[1] < peaks[0] + 50e6
