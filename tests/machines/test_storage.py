"""Results in storage: whatever happens to them is found, one map writes at a time, and only the same map goes on."""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robots import own
from test_identity import MAKERS

import robodyn as rd
from robodyn.distributed import Histogram, Statistics
from robodyn.distributed import map as map_states
from robodyn.distributed.lock import LOCK_FILE
from robodyn.distributed.store import Output, Results

dask = pytest.importorskip("dask", reason="no Dask")
distributed = pytest.importorskip("distributed", reason="no Dask")
zarr = pytest.importorskip("zarr", reason="no zarr")

BLOCKS, CHUNK = 5, 3


@pytest.fixture(scope="module")
def dyn():
    return rd.Dynamics(rd.load_urdf(own("arm6")), engine="reference")


def in_boxes(arrays):
    return arrays["gravity"][:, 1]


HISTOGRAM = Histogram(in_boxes, [np.linspace(-90, 90, 7)])
REDUCTIONS = {"results": None, "values": {"a": Statistics(), "b": HISTOGRAM}, "function": np.mean}


def asking(dyn, client, out, kind="results", **options):
    reduce = REDUCTIONS[kind] if type(kind) is str else kind
    options = {"chunk": CHUNK, "client": client, "out": out, "reduce": reduce, **options}
    return map_states(dyn, "gravity_force", range(BLOCKS), **options)


@pytest.fixture(scope="module")
def finished(dyn, client, tmp_path_factory):
    """By kind: two stores of the same map, and what it gives."""
    folder = tmp_path_factory.mktemp("finished")
    for kind in REDUCTIONS:
        for name in ("one", "two"):
            asking(dyn, client, folder / f"{kind}-{name}", kind)
    return {kind: (folder / f"{kind}-one", folder / f"{kind}-two", plain(dyn, client, kind)) for kind in REDUCTIONS}


def plain(dyn, client, kind):
    return words_of(asking(dyn, client, None, kind))


def words_of(found):
    """All of what a map gave, bit for bit."""
    return repr(found if isinstance(found, dict | list) else np.asarray(found[:]).tolist())


def files_in(store):
    return sorted(path for path in store.rglob("*") if path.is_file())


# Damage of a file, given another one of the same store, its like in the other store, and a number.


def delete(path, other, stale, number):
    path.unlink()


def cut(path, other, stale, number):
    data = path.read_bytes()
    path.write_bytes(data[: number % max(1, len(data))])


def flip(path, other, stale, number):
    data = bytearray(path.read_bytes())
    if data:
        data[number // 8 % len(data)] ^= 1 << number % 8
    path.write_bytes(data)


def append(path, other, stale, number):
    path.write_bytes(path.read_bytes() + bytes(number % 9 + 1))


def swap(path, other, stale, number):
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def copy(path, other, stale, number):
    path.write_bytes(other.read_bytes())


def take_stale(path, other, stale, number):
    path.write_bytes(stale.read_bytes())


def beside(path, other, stale, number):
    path.with_name(f"{number}").write_bytes(other.read_bytes())


def fold(path, other, stale, number):
    path.unlink()
    path.mkdir()


def link(path, other, stale, number):
    path.unlink()
    path.symlink_to(path.name)


def take_all_stale(path, other, stale, number):
    for each in path.parent.glob("*") if number % 2 else ():
        if each.is_file() and (stale.parent / each.name).is_file():
            each.write_bytes((stale.parent / each.name).read_bytes())


DAMAGES = [delete, cut, flip, append, swap, copy, take_stale, beside, fold, link, take_all_stale]


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from([*REDUCTIONS]),
    damages=st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3),
    data=st.data(),
)
def test_after_any_damage_results_are_right_or_refused(dyn, client, finished, kind, damages, data):
    one, two, wanted = finished[kind]
    with tempfile.TemporaryDirectory() as folder:
        out, hit = Path(folder, "r"), set()
        shutil.copytree(one, out)
        for damage in damages:
            path, other = (data.draw(st.sampled_from(files_in(out))) for _ in range(2))
            hit |= {path, other}
            stale = two / path.relative_to(out)
            damage(path, other, stale if stale.exists() else other, data.draw(st.integers(0, 5000)))
        try:
            found = asking(dyn, client, out, kind)
        except rd.RobodynError as error:
            assert re.search(r"(^|: )out: ", str(error)), error
        else:
            assert words_of(found) == wanted
            if kind == "results":
                assert (zarr.open_group(str(out), mode="r")["done"][:] == 1).all()
        try:
            found = asking(dyn, client, out, kind, resume=False)
        except rd.RobodynError as error:  # whether it is a map's folder is no longer known, or it is a user's file
            assert out / "zarr.json" in hit or {beside, fold, link} & set(damages), error
        else:
            assert words_of(found) == wanted


def test_what_others_have_put_beside_results_stays(dyn, client, tmp_path):
    """Arrays with names of other queries' results, and attributes: `resume=False` removes what the map has written."""
    out = tmp_path / "r"
    wanted = words_of(asking(dyn, client, out, "results"))
    group = zarr.open_group(str(out), mode="r+")
    group.create_array("tau", data=np.arange(3.0))
    group.attrs["mine"] = "kept"
    assert words_of(asking(dyn, client, out, "results", resume=False)) == wanted
    group = zarr.open_group(str(out), mode="r")
    assert group["tau"][:].tolist() == [0.0, 1.0, 2.0] and group.attrs["mine"] == "kept"


CHUNKS = {"results": "gravity/c/3/0", "values": "value1/c/3/0", "function": "value0/c/3"}


@pytest.mark.parametrize("kind", CHUNKS)
@pytest.mark.parametrize("damage", [delete, cut, flip, swap, copy, take_stale, fold], ids=lambda each: each.__name__)
def test_damaged_blocks_alone_are_computed_again(dyn, client, finished, kind, damage, tmp_path, monkeypatch):
    one, two, wanted = finished[kind]
    out = tmp_path / "r"
    shutil.copytree(one, out)
    path = out / CHUNKS[kind]
    other = out / CHUNKS[kind].replace("/3", "/1")
    if damage is take_stale:  # another run's block with its checksum, which are right for each other
        (out / "checksums/c/3/0").write_bytes((two / "checksums/c/3/0").read_bytes())
        path.write_bytes((two / CHUNKS[kind]).read_bytes())
    else:
        damage(path, other, None, 77)
    wrote = []
    for kept, name in ((Output, "write"), (Results, "put_value")):
        act = getattr(kept, name)
        monkeypatch.setattr(
            kept, name, lambda self, block, given, act=act: (wrote.append(block), act(self, block, given))[1]
        )
    if damage is fold:
        with pytest.raises(rd.RobodynError, match=r"block 3 .*out: "):
            asking(dyn, client, out, kind)
        return
    assert words_of(asking(dyn, client, out, kind)) == wanted
    numbers = sorted(getattr(each, "number", each) for each in wrote)
    assert numbers == ([1, 3] if damage is swap else [3])


def test_damage_while_a_map_runs_is_found_at_its_end(dyn, client, tmp_path, monkeypatch):
    write = Output.write

    def written(self, block, found):
        write(self, block, found)
        if block.number == 4:
            (tmp_path / "r/gravity/c/2/0").write_bytes((tmp_path / "r/gravity/c/4/0").read_bytes())

    monkeypatch.setattr(Output, "write", written)
    with pytest.raises(
        rd.UnavailableError, match=r"^block 2 \(states 6 to 8, seed 2\): out: .*r/gravity/c/2/0 is missing or"
    ):
        asking(dyn, client, tmp_path / "r")
    monkeypatch.undo()
    assert words_of(asking(dyn, client, tmp_path / "r")) == plain(dyn, client, "results")


def test_results_that_are_nothing_but_nan_are_kept(dyn, client, tmp_path, monkeypatch):
    q = np.zeros((BLOCKS * CHUNK, 6))
    q[CHUNK : 2 * CHUNK] = np.nan
    wrote, write = [], Output.write
    monkeypatch.setattr(
        Output, "write", lambda self, block, found: (wrote.append(block.number), write(self, block, found))
    )
    for _ in range(2):
        map_states(dyn, "gravity_force", q, chunk=CHUNK, client=client, out=tmp_path / "r")
    assert sorted(wrote) == [*range(BLOCKS)]
    plain_zeros = (lambda gravity: np.array([-0.0, 0.0]), lambda gravity: 0, lambda gravity: -0j, lambda gravity: False)
    nans = (lambda gravity: -np.nan, lambda gravity: complex(1.0, np.nan), lambda gravity: complex(np.nan, np.nan))
    for number, reduce in enumerate((*plain_zeros, *nans)):
        out = tmp_path / str(number)
        first, again = (asking(dyn, client, out, reduce) for _ in range(2))
        assert repr(first) == repr(again) if number < len(plain_zeros) else np.isnan([first, again]).all()


def test_values_without_numbers_are_values(dyn, client, tmp_path):
    for number, reduce in enumerate((lambda gravity: (), lambda gravity: {"a": [], "b": {}})):
        for _ in range(2):
            assert asking(dyn, client, tmp_path / str(number), reduce) == BLOCKS * [reduce(None)]


def test_files_that_are_no_blocks_are_named(dyn, client, finished, tmp_path):
    for number, place in enumerate(("gravity/c/5/0", "gravity/c/3/1", "gravity/c/03/0", "done/c/x", "checksums/c/9")):
        out = tmp_path / str(number)
        shutil.copytree(finished["results"][0], out)
        (out / place).parent.mkdir(exist_ok=True)
        if (out / place).is_dir():
            place = f"{place}/1"
        (out / place).write_bytes(b"more")
        with pytest.raises(rd.ArgumentError, match=rf"out: .*{place}.* is none of the blocks"):
            asking(dyn, client, out)
        assert words_of(asking(dyn, client, out, resume=False)) == finished["results"][2]
    (out / "gravity/c/3/0.1234.partial").write_bytes(b"of a crash")
    (out / "gravity/c/3/.nfs01").write_bytes(b"of a file system")
    assert words_of(asking(dyn, client, out)) == finished["results"][2]


# What storage says of itself.


def test_manifests_that_are_damaged_or_changed(dyn, client, finished, tmp_path, monkeypatch):
    out = tmp_path / "r"
    shutil.copytree(finished["results"][0], out)
    whole = json.loads((out / "zarr.json").read_text())
    for text in (
        "",
        "{",
        "[]",
        "null",
        '{"zarr_format": 3}',
        "\0",
        json.dumps({**whole, "attributes": {"robodyn": 3}}),
    ):
        (out / "zarr.json").write_text(text)
        with pytest.raises(rd.ArgumentError, match=r"^out: "):
            asking(dyn, client, out)
    wrote, write = [], Output.write
    monkeypatch.setattr(
        Output, "write", lambda self, block, found: (wrote.append(block.number), write(self, block, found))
    )
    said = whole["attributes"]["robodyn"]
    for changed in ({"identity": "0" * 32}, {"more": 1}):  # checksums are those of the words that were there
        wrote.clear()
        (out / "zarr.json").write_text(json.dumps({**whole, "attributes": {"robodyn": {**said, **changed}}}))
        assert words_of(asking(dyn, client, out)) == finished["results"][2] and len(wrote) == BLOCKS
    for name in said:
        without = {each: said[each] for each in said if each != name}
        (out / "zarr.json").write_text(json.dumps({**whole, "attributes": {"robodyn": without}}))
        with pytest.raises(rd.ArgumentError, match=r"^out: "):
            asking(dyn, client, out)


def test_an_older_format_is_refused_by_name(dyn, client, tmp_path):
    group = zarr.create_group(str(tmp_path / "r"), attributes={"robodyn": {"version": "0.1.0", "identity": "0" * 32}})
    for name, shape in (("done", (BLOCKS,)), ("gravity", (BLOCKS * CHUNK, 6))):
        group.create_array(name, shape=shape, dtype="u1" if name == "done" else "f8")[:] = 1
    with pytest.raises(rd.ArgumentError, match=r"out: .* has format 1, of another version of robodyn.*resume=False"):
        asking(dyn, client, tmp_path / "r")
    assert words_of(asking(dyn, client, tmp_path / "r", resume=False)) == plain(dyn, client, "results")


def test_arrays_whose_codecs_run_code_are_not_read(dyn, client, finished, tmp_path):
    for name in ("done", "checksums", "gravity"):
        out = tmp_path / name
        shutil.copytree(finished["results"][0], out)
        words = json.loads((out / name / "zarr.json").read_text())
        words["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
        (out / name / "zarr.json").write_text(json.dumps(words))
        with pytest.raises(rd.ArgumentError, match=f"out: its array '{name}' is not what map has made"):
            asking(dyn, client, out)
        assert words_of(asking(dyn, client, out, resume=False)) == finished["results"][2]


@pytest.mark.parametrize("kind", ("results", "function"))
def test_disks_that_are_full_are_named(dyn, client, tmp_path, monkeypatch, kind):
    store = zarr.storage.LocalStore
    for number, part in enumerate(("c/2", "done", "zarr.json")):
        out = tmp_path / str(number)
        put = store.set

        async def full(self, key, value, part=part, put=put):
            if part in key:
                raise OSError(errno.ENOSPC, "No space left on device")
            await put(self, key, value)

        with monkeypatch.context() as patched:
            patched.setattr(store, "set", full)
            with pytest.raises(rd.RobodynError, match=rf"out: .*{out}.*No space left"):
                asking(dyn, client, out, kind)
        assert words_of(asking(dyn, client, out, kind)) == plain(dyn, client, kind)


def test_places_that_cannot_be_written_to(dyn, client, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below", "/proc/robodyn", "/dev/null"):
        with pytest.raises(rd.RobodynError, match=r"^out: "):
            asking(dyn, client, out)
    assert (tmp_path / "file").read_text() == "mine"


# Several maps and one place.


def test_one_of_two_maps_is_told(dyn, client, tmp_path):
    entered, over = HELD
    entered.clear(), over.clear()
    draw = waiting
    other = tmp_path / "link"
    other.symlink_to(tmp_path / "r")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asking, dyn, client, tmp_path / "r", draw=draw, key="slow")
        try:
            assert entered.wait(30)
            for out in (tmp_path / "r", other):
                for resume in (True, False):
                    with pytest.raises(
                        rd.UnavailableError, match=rf"out: another map writes to .*process {os.getpid()}"
                    ):
                        asking(dyn, client, out, draw=draw, key="slow", resume=resume)
            child = subprocess.run([sys.executable, "-c", ASK, str(tmp_path / "r")], capture_output=True, text=True)
            assert f"process {os.getpid()} on " in child.stderr, child.stderr
        finally:
            over.set()
        got = words_of(first.result())
    assert not (tmp_path / "r" / LOCK_FILE).exists()
    assert words_of(asking(dyn, client, other, draw=draw, key="slow")) == got


HELD = threading.Event(), threading.Event()


def waiting(rng, n):
    HELD[0].set()
    assert HELD[1].wait(30)
    return {"q": rng.normal(size=(n, 6))}


ASK = """
import sys
from pathlib import Path
from robodyn.distributed.lock import alone
with alone("here", Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_lock_does_not_outlive_its_process(dyn, client, tmp_path):
    out = tmp_path / "r"
    holder = subprocess.Popen([sys.executable, "-c", ASK, str(out)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"mine\n"
        with pytest.raises(rd.UnavailableError, match=f"another map writes to .* \\(process {holder.pid} on "):
            asking(dyn, client, out)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert (out / LOCK_FILE).exists()
    assert words_of(asking(dyn, client, out)) == plain(dyn, client, "results")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_holds_no_lock(tmp_path):
    from robodyn.distributed.lock import alone

    told, tells = os.pipe()
    with alone("place", tmp_path):
        child = os.fork()
        if child == 0:
            try:
                with alone("place", tmp_path):
                    os._exit(1)
            except rd.UnavailableError:
                os.write(tells, b"1")
                signal.pause()
            finally:
                os._exit(2)
        assert os.read(told, 1) == b"1"
    try:
        with alone("place", tmp_path):
            assert (tmp_path / LOCK_FILE).exists()
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        os.close(told), os.close(tells)


def test_many_maps_at_once_leave_one_result(dyn, client, tmp_path):
    def ask(_):
        try:
            return words_of(asking(dyn, client, tmp_path / "r"))
        except rd.UnavailableError as error:
            assert "another map writes" in str(error)
            return None

    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(ask, range(6))]
    assert {each for each in found if each} == {plain(dyn, client, "results")}
    assert words_of(asking(dyn, client, tmp_path / "r")) == plain(dyn, client, "results")


def test_an_older_run_does_not_write_into_a_newer_one(dyn, client, finished, tmp_path):
    out = tmp_path / "r"
    shutil.copytree(finished["results"][0], out)
    said = zarr.open_group(str(out), mode="r").attrs["robodyn"]
    from robodyn.distributed.inputs import Block
    from robodyn.distributed.store import _mark

    old = Output(str(out), _mark(said))
    asking(dyn, client, out, resume=False)
    with pytest.raises(rd.UnavailableError, match="is not what map has made"):
        old.write(Block(0, 0, 3, 0), {"gravity": np.zeros((3, 6))})


# Who may go on.


def own_draw(scale):
    def draw(rng, n):
        return {"q": float(scale) * rng.normal(size=(n, 6))}

    return draw


def test_without_certainty_a_key_is_needed(dyn, client, tmp_path):
    one, two = own_draw(Fraction(1, 2)), own_draw(Fraction(1, 3))
    out = tmp_path / "r"
    first = words_of(asking(dyn, client, out, draw=one))
    for draw in (one, two):
        with pytest.raises(rd.ArgumentError, match=r'^resume: .*draw, variable scale: .* Fraction.*key="..."'):
            asking(dyn, client, out, draw=draw)
    with pytest.raises(rd.ArgumentError, match="key was ''"):
        asking(dyn, client, out, draw=one, key="half")
    with pytest.raises(rd.ArgumentError, match="draw was not known for certain"):
        asking(dyn, client, out, draw=own_draw(0.5))
    assert words_of(asking(dyn, client, out, draw=one, key="half", resume=False)) == first
    assert words_of(asking(dyn, client, out, draw=two, key="half")) == first, "the key is what counts"
    for options in ({"key": "third", "draw": two}, {"draw": two}, {"key": "half"}):
        with pytest.raises(rd.ArgumentError, match=r"(key|draw) was"):
            asking(dyn, client, out, **options)
    with pytest.raises(rd.ArgumentError, match="states was"):
        asking(dyn, client, out, draw=one, key="half", chunk=CHUNK + 1)
    with pytest.raises(rd.ArgumentError, match="dynamics was"):
        asking(dyn.variant(dtype="float32"), client, out, draw=one, key="half")
    assert words_of(asking(dyn, client, tmp_path / "s", draw=own_draw(0.5))) == first
    assert words_of(asking(dyn, client, tmp_path / "s", draw=own_draw(0.5))) == first


@pytest.mark.parametrize("key", ("", "x" * 201, 3, b"x", "a\nb", ("x",)), ids=repr)
def test_keys_are_words(dyn, client, tmp_path, key):
    with pytest.raises(rd.ArgumentError, match=r"^key: got "):
        asking(dyn, client, tmp_path / "r", key=key)


def test_robots_of_own_classes_and_constraints_count(dyn, client, tmp_path):
    class Heavier(rd.Dynamics):
        def gravity_force(self, q, **options):
            return 2.0 * super().gravity_force(q, **options)

    for robot, options, match in (
        (Heavier(dyn.model, engine="reference"), {}, "resume: .*dyn: Heavier of a Model"),
        (dyn.variant(constraints=[rd.Point("tool0")]), {}, "robot was"),
    ):
        out = tmp_path / type(robot).__name__
        asking(dyn, client, out)
        with pytest.raises(rd.ArgumentError, match=match):
            asking(robot, client, out, **options)
    one, two = (dyn.variant(constraints=[rd.Point("tool0")], proximal=(size, 3)) for size in (1e-8, 1e-6))
    asking(one, client, tmp_path / "held")
    with pytest.raises(rd.ArgumentError, match="robot was"):
        asking(two, client, tmp_path / "held")


def test_arrays_in_storage_count_by_their_bytes_and_those_of_dask_by_a_key(dyn, client, tmp_path):
    import dask.array as da

    q = np.random.default_rng(3).normal(size=(BLOCKS * CHUNK, 6))
    stored = zarr.create_array(str(tmp_path / "q"), data=q, chunks=(4, 6))

    def ask(array, out, **options):
        return words_of(
            map_states(dyn, "gravity_force", array, chunk=CHUNK, client=client, out=tmp_path / out, **options)
        )

    first = ask(stored, "r")
    assert ask(stored, "r") == first == words_of(dyn.gravity_force(q))
    ask(stored, "k", key="q, first version")
    stored[7] = 0.0
    with pytest.raises(rd.ArgumentError, match="inputs was"):
        ask(stored, "r")
    assert ask(stored, "k", key="q, first version") == first
    lazy = da.from_array(q, chunks=(5, 6), name="mine")
    assert ask(lazy, "d") == first
    with pytest.raises(rd.ArgumentError, match=r"^resume: .*q: an array of Dask.*key="):
        ask(lazy, "d")
    assert ask(lazy, "e", key="q") == first
    with pytest.raises(rd.ArgumentError, match="inputs was"):
        ask(da.from_array(q, chunks=(5, 6), name="other"), "e", key="q")


def test_a_worker_with_another_function_is_named(dyn, client, tmp_path, monkeypatch):
    from robodyn.distributed import block

    monkeypatch.setattr(block, "identity", lambda name, value: "another")
    with pytest.raises(rd.UnavailableError, match=r"^block \d .*: draw: on this worker it is not what it is where map"):
        asking(dyn, client, tmp_path / "r", draw=own_draw(0.5))
    asking(dyn, client, tmp_path / "r", draw=own_draw(0.5), key="half", resume=False)


@pytest.mark.parametrize("number", range(len(MAKERS)))
def test_another_function_of_every_kind_never_gets_the_results_of_the_first(dyn, client, tmp_path, number):
    """A function of 1.0 and one of 2.0, which hide these in different places, and the first one made anew."""
    one, two, again = (MAKERS[number](value) for value in (1.0, 2.0, 1.0))
    if isinstance(one, type | list | functools._lru_cache_wrapper):
        pytest.skip("nothing that reduces, or that travels")
    out = tmp_path / "r"
    first = asking(dyn, client, out, one)
    assert repr(first) != repr(asking(dyn, client, None, two))
    with pytest.raises(rd.ArgumentError, match=r"reduce was|^resume: .*reduce.*key="):
        asking(dyn, client, out, two)
    try:
        assert repr(asking(dyn, client, out, again)) == repr(first)
    except rd.ArgumentError as error:
        assert "key=" in str(error)


def test_tasks_that_run_twice_count_once(dyn, client, tmp_path, monkeypatch):
    write = Output.write
    monkeypatch.setattr(Output, "write", lambda *given: (write(*given), write(*given)))
    assert words_of(asking(dyn, client, tmp_path / "r")) == plain(dyn, client, "results")
    found = asking(dyn, client, tmp_path / "v", "values")
    assert found["b"]["counts"].sum() + found["b"]["outside"] == BLOCKS * CHUNK == found["a"]["count"][0]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_metadata_that_others_have_consolidated(dyn, client, tmp_path):
    out, wanted = tmp_path / "r", plain(dyn, client, "results")
    asking(dyn, client, out)
    zarr.consolidate_metadata(str(out))
    assert words_of(asking(dyn, client, out)) == wanted
    assert words_of(asking(dyn, client, out, resume=False)) == wanted
