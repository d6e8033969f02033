"""Who may use a view, and what happens to whatever a client sends."""

from __future__ import annotations

import dataclasses
import math
import random
import socket
import time

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.tools.viewer.origins import origins_of, refusal

SEED = 71
HUB = "https://hub.example.org"


# Who may connect.


@pytest.mark.parametrize(
    ("host", "origin", "allowed", "answered"),
    [
        ("127.0.0.1:8080", None, (), True),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", (), True),
        ("LOCALHOST:8080", "http://localhost:8080", (), True),
        ("[::1]:8080", "http://[::1]:8080", (), True),
        ("127.0.0.1:8080", "http://localhost:8080", (), True),  # another name of the same server
        ("localhost:9000", "http://localhost:9000", (), True),  # a port that was forwarded
        ("localhost:9000", "https://localhost:9000", (), True),
        ("localhost", "http://localhost", (), True),
        ("127.0.0.1:8080", "http://evil.example", (), False),
        ("127.0.0.1:8080", "http://evil.example:8080", (), False),
        ("127.0.0.1:8080", "http://localhost:3000", (), False),  # another server on this machine
        ("127.0.0.1:8080", "null", (), False),  # a page without an origin, such as a sandboxed frame
        ("127.0.0.1:8080", "http://127.0.0.1:8080.evil.example", (), False),
        ("127.0.0.1:8080", "http://127.0.0.1:8080@evil.example", (), False),
        ("127.0.0.1:8080", "", (), False),
        ("127.0.0.1:8080", "http://[::1", (), False),
        ("evil.example:8080", None, (), False),  # a name that was pointed to this machine
        ("evil.example:8080", "http://evil.example:8080", (), False),
        ("localhost.evil.example:8080", "http://localhost.evil.example:8080", (), False),
        ("127.0.0.1.evil.example", None, (), False),
        ("", None, (), False),
        ("[", None, (), False),
        ("127.0.0.1:x", None, (), False),
        ("hub.example.org", HUB, (), False),
        ("hub.example.org", HUB, (HUB,), True),
        ("127.0.0.1:8080", HUB, (HUB,), True),
        ("hub.example.org:81", HUB, (HUB,), False),
        ("127.0.0.1:8080", "http://hub.example.org", (HUB,), False),
    ],
)
def test_who_is_answered(host, origin, allowed, answered):
    found = refusal([host] if host else [], [] if origin is None else [origin], 8080, origins_of(allowed))
    assert (found is None) == answered, found


def test_headers_that_come_twice_are_refused():
    here = "http://127.0.0.1:8080"
    assert refusal(["127.0.0.1:8080", "evil.example"], [], 8080, ()) is not None
    assert refusal(["127.0.0.1:8080"], [here, "http://evil.example"], 8080, ()) is not None


@pytest.mark.parametrize("wrong", ["*", "hub.example.org", f"{HUB}/a", "ftp://a", "http://", "http://a:b", 3, None])
def test_origins_that_are_none(wrong):
    with pytest.raises(rd.ArgumentError, match="origins: got"):
        origins_of([wrong])
    with pytest.raises(rd.ArgumentError, match="origins: got"):
        origins_of(wrong)


# The live view.


@pytest.fixture(scope="module")
def model():
    return rd.load_urdf(own("arm6"))


@pytest.fixture
def view(model):
    pytest.importorskip("viser")
    with rd.show(model, origins=[HUB]) as shown:
        yield shown


def port_of(view):
    return int(view.url.rsplit(":", 1)[1])


def answer(view, **headers):
    """The first line of what the server says to a request with these headers."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port_of(view)), timeout=20) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
        return connection.recv(4096).decode("latin1").splitlines()[0]


@pytest.mark.extras
def test_pages_of_others_are_refused(view):
    import viser

    asked = {
        "Host": f"127.0.0.1:{port_of(view)}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Protocol": f"viser-v{viser.__version__}",
    }
    assert " 101 " in answer(view, **asked)
    for origin in (view.url, f"http://localhost:{port_of(view)}", HUB):
        assert " 101 " in answer(view, **asked, Origin=origin), origin
    for origin in ("http://evil.example", f"http://evil.example:{port_of(view)}", "null", f"{HUB}:444"):
        assert " 403 " in answer(view, **asked, Origin=origin), origin
        assert " 403 " in answer(view, Host=asked["Host"], Origin=origin), origin
    for host in (f"evil.example:{port_of(view)}", "evil.example"):
        assert " 403 " in answer(view, **asked | {"Host": host}), host
        assert " 403 " in answer(view, Host=host), host
    assert " 200 " in answer(view, Host=asked["Host"])


@pytest.mark.extras
def test_a_viser_that_cannot_be_guarded_is_refused(model, monkeypatch):
    """A newer viser that starts otherwise, or reads messages otherwise."""
    infra = pytest.importorskip("viser.infra")
    pytest.importorskip("viser._viser")
    made = infra.WebsockServer.__init__

    def without(self, *given, **options):
        made(self, *given, **options)
        del self._message_class

    with monkeypatch.context() as patch:
        patch.setattr(infra.WebsockServer, "__init__", without)
        with pytest.raises(rd.UnavailableError, match=r"viser .* cannot be guarded"):
            rd.show(model)
    from robodyn.tools.viewer import guard

    with monkeypatch.context() as patch:
        patch.setattr(guard.Server, "_guard", lambda self, inner: None)
        with pytest.raises(rd.UnavailableError, match=r"viser .* cannot be guarded"):
            rd.show(model)


# What clients send.


class Client:
    """A program that is connected as a page is."""

    def __init__(self, view):
        import viser
        from websockets.sync.client import connect

        options = {"subprotocols": [f"viser-v{viser.__version__}"], "compression": None, "max_size": None}
        self._connection, self.received = connect(view.url.replace("http", "ws"), **options), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def send(self, kind, **fields):
        import msgspec

        self.send_bytes(msgspec.msgpack.encode({"type": kind, **fields}))

    def send_bytes(self, data):
        self._connection.send(data)

    def until(self, kind, holds, seconds=30.0):
        """Receive until there was a message of a kind for which something holds."""
        import msgspec
        import zstandard

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            data = self._connection.recv(timeout=seconds)
            packed = data[16 : 16 + int.from_bytes(data[8:16], "little")]
            for message in msgspec.msgpack.decode(zstandard.decompress(packed))["messages"]:
                self.received.append(message["type"])
                if message["type"] == kind and holds(message):
                    return message
        raise AssertionError(f"no such {kind}")


CAMERA = {
    "wxyz": [1.0, 0.0, 0.0, 0.0],
    "position": [1.0, 1.0, 1.0],
    "fov": 1.0,
    "near": 0.01,
    "far": 100,
    "image_height": 100,
    "image_width": 100,
    "look_at": [0.0, 0.0, 0.0],
    "up_direction": [0.0, 0.0, 1.0],
}

NUMBERS = (0, -1, 2**63, 0.5, -1e-320, 1e9, 1e30, 1e308, math.nan, math.inf, True, False, None)
TEXTS = ("", "value", "removed", "nan", "/", "a" * 10_000, "\0")
LISTS = ([], [0.0], [0.0] * 3, [0.0] * 4, [math.nan] * 3, [1e300] * 3, ["a"] * 3, [None] * 4, [[0.0] * 3] * 3)
LARGE = ([0.0] * 10_000, list(range(10_000)), {str(k): k for k in range(1000)}, b"\0" * 10_000)
GARBAGE = (*NUMBERS, *TEXTS, *LISTS, *LARGE, {}, {"value": math.nan}, {"a": {"b": [{}]}}, b"")
STATE = ("value", "removed", "update_cb", "sync_cb", "uuid", "props", "gui_api", "is_button", "__class__", "order", "a")


def attacks(view, rng):
    """Messages of every type that viser has: fields of any type, and such as name what is there."""
    import viser._messages as messages
    from viser.infra._messages import wire_field_names

    controls = list(view._server.gui._gui_input_handle_from_uuid)
    nodes = ["/target", "/frames", "/shapes/1", "/", "/WorldAxes"]
    for kind in messages.Message.get_subclasses():
        fields = wire_field_names(kind) if dataclasses.is_dataclass(kind) else ()
        for _ in range(3):
            found = {name: rng.choice(GARBAGE) for name in fields}
            if "uuid" in found:
                found["uuid"] = rng.choice(controls)
            if "name" in found:
                found["name"] = rng.choice(nodes)
            if "owner" in found:
                found["owner"] = ""
            yield kind.__name__, found
    for control in controls:
        for name in STATE:
            yield "GuiUpdateMessage", {"uuid": control, "updates": {name: rng.choice(GARBAGE)}}
        for value in GARBAGE:
            yield "GuiUpdateMessage", {"uuid": control, "updates": {"value": value}}
        yield "GuiUpdateMessage", {"uuid": control, "updates": {}}
        yield "GuiUpdateMessage", {"uuid": control, "updates": {"value": 0.1, "removed": True}}
        yield "GuiUpdateMessage", {"uuid": control}
    for value in GARBAGE:
        fields = {"name": "/target", "wxyz": [1.0, 0.0, 0.0, 0.0], "position": [0.3, 0.3, 0.3], "owner": ""}
        for name in ("name", "wxyz", "position", "owner"):
            yield "TransformControlsUpdateMessage", fields | {name: value}
        for name in CAMERA:
            yield "ViewerCameraMessage", CAMERA | {name: value}
        yield value, {}


RAW = (b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000)


@pytest.mark.extras
def test_nothing_that_a_client_sends_breaks_a_view(view, model, capfd):
    print(f"seed {SEED}")
    view.target("tool0")
    view.show(np.full(6, 0.2))
    capfd.readouterr()
    before = [(each.value, each.min, each.max) for each in view._sliders]
    handle = np.array(view._target._handle.position)
    sent = 0
    with Client(view) as watching, Client(view) as attacker:
        watching.send("ViewerCameraMessage", **CAMERA)
        attacker.send("ViewerCameraMessage", **CAMERA)
        for data in RAW:
            attacker.send_bytes(data)
        for kind, fields in attacks(view, random.Random(SEED)):
            if not is_fair(view, kind, fields):
                attacker.send(kind, **fields)
                sent += 1
        assert sent > 1000
        # Messages of a client are read in their order: after this one all were.
        button = view._boxes["frames"]._impl.uuid
        attacker.send("GuiUpdateMessage", uuid=button, updates={"value": True})
        watching.until("GuiUpdateMessage", lambda told: told["uuid"] == button and told["updates"] == {"value": True})
        assert [(each.value, each.min, each.max) for each in view._sliders] == before
        np.testing.assert_array_equal(view._target._handle.position, handle)
        np.testing.assert_array_equal(view.q, np.full(6, 0.2))

        # From Python, and from the other client.
        q = model.random_configuration(SEED)
        view.show(q)
        place = rd.Dynamics(model).link_pose(q, "tool0")[:3, 3]
        watching.until(
            "SetPositionMessage",
            lambda told: told["name"] == "/target" and np.allclose(told["position"], place, atol=1e-6),
        )
        watching.send("GuiUpdateMessage", uuid=view._sliders[1]._impl.uuid, updates={"value": -0.3})
        wait_for(lambda: view.q[1] == -0.3)
        goal = place - np.array([0.0, 0.0, 0.01])
        drag = {"name": "/target", "owner": ""}
        watching.send("TransformControlsDragStartMessage", **drag)
        watching.send("TransformControlsUpdateMessage", **drag, wxyz=[1, 0, 0, 0], position=goal.tolist())
        wait_for(lambda: np.allclose(view._target._handle.position, goal))
        watching.send("TransformControlsDragEndMessage", **drag)
    with Client(view) as late:  # which is sent all that there is
        late.until("ReplayDoneMessage", lambda told: True)
    view.show(q)
    np.testing.assert_array_equal(view.q, q)
    assert capfd.readouterr() == ("", ""), "nothing that went wrong was printed"


def is_fair(view, kind, fields):
    """Whether a message is one that a page could send."""
    if kind == "TransformControlsUpdateMessage":
        return fields["name"] == "/target" and _is_place(fields)
    updates = fields.get("updates") if kind == "GuiUpdateMessage" else None
    if not isinstance(updates, dict) or set(updates) != {"value"}:
        return False
    handle, value = view._server.gui._gui_input_handle_from_uuid[fields["uuid"]], updates["value"]
    if isinstance(handle.value, bool):
        return isinstance(value, bool)
    if isinstance(handle.value, str):
        return isinstance(value, str) and value in handle.options
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and handle.min - handle.step <= value <= handle.max + handle.step


def _is_place(fields):
    def numbers(value, count):
        return isinstance(value, list) and len(value) == count and all(type(x) is float for x in value)

    return (
        fields["owner"] == ""
        and numbers(fields["position"], 3)
        and numbers(fields["wxyz"], 4)
        and np.abs(fields["position"]).max() <= 1e9
        and abs(np.linalg.norm(fields["wxyz"]) - 1.0) < 0.1
    )


def wait_for(holds):
    end = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.extras
@pytest.mark.parametrize("data", [b"\0" * (2 << 20), "a text"], ids=["large", "text"])
def test_a_client_that_breaks_the_rules_is_closed_and_no_other(view, data, capfd):
    from websockets.exceptions import ConnectionClosed

    with Client(view) as watching, Client(view) as attacker:
        watching.send("ViewerCameraMessage", **CAMERA)
        with pytest.raises(ConnectionClosed):
            attacker.send_bytes(data)
            attacker.until("nothing", lambda told: True)
        watching.send("GuiUpdateMessage", uuid=view._sliders[0]._impl.uuid, updates={"value": 0.25})
        wait_for(lambda: view.q[0] == 0.25)
    assert capfd.readouterr() == ("", "")


@pytest.mark.extras
def test_a_handle_beyond_what_is_computed_comes_back(view):
    """A place far away, which a page may send."""
    view.target("tool0")
    with Client(view) as client:
        client.send("ViewerCameraMessage", **CAMERA)
        drag = {"name": "/target", "owner": ""}
        client.send("TransformControlsDragStartMessage", **drag)
        client.send("TransformControlsUpdateMessage", **drag, wxyz=[1, 0, 0, 0], position=[1e9, 1e9, -1e9])
        client.send("TransformControlsDragEndMessage", **drag)
        tool = rd.Dynamics(view.model).link_pose
        wait_for(lambda: np.allclose(view._target._handle.position, tool(view.q, "tool0")[:3, 3]))


@pytest.mark.extras
def test_what_is_shown_leaves_cameras_alone(view, model):
    """They begin where the view says, and are the users' from then on."""
    with Client(view) as client:
        client.until("ReplayDoneMessage", lambda told: True)
        assert {"SetCameraPositionMessage", "SetCameraLookAtMessage"} <= set(client.received)
        client.received.clear()
        view.show(np.full(6, 0.4))
        view.layer("frames")
        poses = rd.Dynamics(model).forward_kinematics(view.q)
        place = poses[model.link_index("wrist_3"), :3, 3]
        client.until("SetPositionMessage", lambda told: np.allclose(told["position"], place, atol=1e-6))
        assert not [kind for kind in client.received if "Camera" in kind]
