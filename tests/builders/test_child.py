"""Child processes: what a program does in one does not reach the next request, nor this process."""

from __future__ import annotations

import os
import sys
import time

import pytest

from robodyn.io.builders import child

PROGRAM = """
import os, time
count = 0
def start():
    return answer
def answer(request):
    global count
    count += 1
    what, *parts = request
    if what == b"count":
        return [str(count).encode()]
    if what == b"fail":
        raise MemoryError("no memory")
    if what == b"end of file":
        raise EOFError("of its own")
    if what == b"fail later" and count > 1:
        raise ValueError("used before")
    if what == b"die later" and count > 1:
        os._exit(3)
    if what == b"die":
        os.abort()
    if what == b"sleep":
        time.sleep(60)
    if what == b"print":
        print("nothing", flush=True)
        os.write(1, b"more")
        assert os.read(0, 10) == b""
    return parts
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "odd_program.py").write_text(PROGRAM)
    (tmp_path / "no_program.py").write_text("import module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    made = child.Program("odd_program", seconds=20.0, memory=4 << 30, largest=1 << 20)
    yield made
    made.close()


def pids(program):
    return [each.process.pid for each in program.idle]


def test_parts_come_back_as_they_were(program):
    parts = [b"", b"\0\n\r\xff", os.urandom(900_000)]
    assert program.ask([b"give", *parts]) == parts
    assert program.ask([b"print", b"x"]) == [b"x"]
    assert program.ask([b"count"]) == [b"3"] and len(pids(program)) == 1


@pytest.mark.parametrize("what", [b"fail later", b"die later"])
def test_what_goes_wrong_in_a_used_process_is_tried_in_a_new_one(program, what):
    assert program.ask([what, b"x"]) == [b"x"]
    first = pids(program)
    assert program.ask([what, b"y"]) == [b"y"]
    assert pids(program) != first and program.ask([b"count"]) == [b"2"]


def test_errors_are_told(program):
    with pytest.raises(child.FailedError, match=r"^no memory \(MemoryError\)$"):
        program.ask([b"fail"])
    with pytest.raises(child.FailedError, match="EOFError"):
        program.ask([b"end of file"])
    how = "SIGABRT" if os.name == "posix" else "exit code"
    with pytest.raises(child.CrashedError, match=how):
        program.ask([b"die"])
    with pytest.raises(child.TooLargeError, match=r"^1048577$"):
        program.ask([b"give", bytes((1 << 20) + 1)])
    assert program.ask([b"give", bytes(1 << 20)]) == [bytes(1 << 20)]
    program.seconds = 0.2
    with pytest.raises(TimeoutError):
        program.ask([b"sleep"])
    assert not pids(program)


def test_a_program_that_cannot_be_imported(program):
    other = child.Program("no_program", seconds=20.0, memory=4 << 30, largest=1 << 20)
    with pytest.raises(child.NotStartedError, match="module_that_is_not_there"):
        other.ask([b"x"])


def test_it_ends_when_it_has_nothing_to_do(program, monkeypatch):
    start = child._START.replace("import serve", "import serve; import robodyn.io.builders.child as child")
    monkeypatch.setattr(child, "_START", start.replace("serve(*", "child._IDLE_SECONDS = 0.2; serve(*"))
    assert program.ask([b"count"]) == [b"1"]
    (kept,) = program.idle
    assert kept.process.wait(20.0) is not None
    assert program.ask([b"count"]) == [b"1"] and program.idle[0] is not kept


@pytest.mark.skipif(sys.platform != "linux", reason="memory of processes is limited there alone")
def test_a_response_that_takes_much_memory_ends_it(program):
    program.largest = 100 << 20
    assert len(program.ask([b"give", bytes(70 << 20)])[0]) == 70 << 20
    assert not pids(program)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_parent_that_is_gone(program):
    program.ask([b"count"])
    (kept,) = program.idle
    kept.close()
    assert kept.process.wait(20.0) == 0


def test_no_time_is_left_for_a_request_that_is_not_read(program):
    """The child process sleeps and reads nothing of the next request, which is larger than a pipe."""
    program.ask([b"count"])
    (kept,) = program.idle
    kept.send([b"sleep"], time.monotonic() + 10.0)
    program.seconds = 0.3
    with pytest.raises(TimeoutError):
        program.ask([b"give", bytes(8 << 20)])
