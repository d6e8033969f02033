"""A server of viser that takes nothing from a browser unread.

viser answers pages of every site, and writes what a page sends into its own state as it comes. It has no option for
either, so its server is set up here before it starts: it asks `origins` who connects, and takes messages only of the
kinds that views use, with values that a control could have. Other messages are dropped.

This is the one module that knows names which viser does not document. A viser without them is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import types
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import viser
import websockets.asyncio.server
from viser import _messages as messages

from robodyn.errors import UnavailableError
from robodyn.viewer.origins import refusal

_LARGEST = 1 << 20
"""Of a message, bytes: those that views use are below 1 kB."""
_FARTHEST = 1e9
"""A handle is dragged no farther than links may be, m."""
_UNIT = 1e-2
"""How far the norm of a quaternion may be off 1."""
_NOTHING = object()
"""What stands for a message that is dropped: viser looks for what to do by type, and finds nothing."""

_CAMERA, _CONTROL, _HANDLE = "ViewerCameraMessage", "GuiUpdateMessage", "TransformControlsUpdateMessage"
_TAKEN = (_CAMERA, _CONTROL, _HANDLE, "TransformControlsDragStartMessage", "TransformControlsDragEndMessage")


class Server(viser.ViserServer):
    """viser's server, guarded from before its start.

    `origins`: of pages that may use it besides those of this machine.

    Raises:
        UnavailableError: this viser is not known well enough to guard it.
    """

    def __init__(self, origins: Sequence[str], **options: Any) -> None:
        self._origins, self._guarded = origins, False
        super().__init__(**options)
        if not self._guarded:
            self.stop()
            raise _unknown("it does not start as was expected")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_websock_server":  # viser makes it and starts it in one go
            self._guard(value)

    def bound_camera(self, nearest: float, farthest: float) -> None:
        """Let cameras go so near to what they turn about, m, and so far from it: the bounds of viser suit usual robots,
        and older ones have none."""
        for bound, distance in {"Min": nearest, "Max": farthest}.items():
            kind = getattr(messages, f"SetCamera{bound}OrbitDistanceMessage", None)
            if kind is not None:
                self._websock_server.queue_message(kind(distance))

    def _guard(self, inner: Any) -> None:
        """Let `inner` read messages by `deserialize`, and make its socket by `_serve`."""
        worker = getattr(type(inner), "_background_worker", None)
        if not isinstance(worker, types.FunctionType) or not hasattr(inner, "_message_class"):
            raise _unknown("its server of websockets is another")
        inner._message_class = self
        # viser's own function, but for the name `websockets` in it.
        socket = _Instead(websockets.asyncio.server, serve=functools.partial(self._serve, inner))
        names = {**worker.__globals__, "websockets": _Instead(websockets, asyncio=_Instead(None, server=socket))}
        inner._background_worker = functools.partial(types.FunctionType(worker.__code__, names), inner)

    def _serve(self, inner: Any, *where: Any, process_request: Any, **options: Any) -> Any:
        """What viser calls to listen."""

        def checked(connection: Any, request: Any) -> Any:
            hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
            why = refusal(hosts, origins, inner._port, self._origins)
            return (
                process_request(connection, request) if why is None else connection.respond(HTTPStatus.FORBIDDEN, why)
            )

        self._guarded = True
        # What goes wrong with a connection is that of the client, and nothing to print here.
        options |= {"max_size": _LARGEST, "logger": logging.Logger("robodyn.viewer", logging.CRITICAL)}
        return websockets.asyncio.server.serve(*where, process_request=checked, **options)

    def deserialize(self, raw: bytes) -> Any:
        """A message that was received, or what viser passes over where it is none that views take."""
        try:
            found = msgspec.msgpack.decode(raw)
            kind = found.pop("type")
            if kind not in _TAKEN:
                return _NOTHING
            message = msgspec.convert(found, getattr(messages, kind))
            sound = self._fits(message) if kind == _CONTROL else _is_sound(message)
        except Exception:  # whatever is wrong with what a client sent
            return _NOTHING
        return message if sound else _NOTHING

    def _fits(self, message: Any) -> bool:
        """Whether a message sets the value of a control to one that it could have."""
        control = self.gui._gui_input_handle_from_uuid.get(message.uuid)
        if control is None or control.disabled or set(message.updates) != {"value"}:
            return False
        value, was = message.updates["value"], control.value
        if isinstance(was, bool):
            return isinstance(value, bool)
        if isinstance(was, str):
            return value in getattr(control, "options", ())
        if not isinstance(was, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return False
        # Browsers round to the steps of a control.
        return bool(control.min - control.step <= value <= control.max + control.step)


class _Instead:
    """Something with other attributes in places."""

    def __init__(self, like: Any, **other: Any) -> None:
        self._like = like
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._like, name)


def _is_sound(message: Any) -> bool:
    """Whether all numbers of a message are finite, quaternions turn, and places can be drawn."""
    told = dataclasses.asdict(message)
    if not all(map(math.isfinite, _numbers(told.values()))):
        return False
    if "wxyz" in told and abs(math.hypot(*told["wxyz"]) - 1.0) > _UNIT:
        return False
    return "position" not in told or max(map(abs, told["position"])) <= _FARTHEST


def _numbers(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, tuple):
            yield from _numbers(value)
        elif isinstance(value, int | float):
            yield value


def _unknown(why: str) -> UnavailableError:
    return UnavailableError(f"show: viser {viser.__version__} cannot be guarded against pages of others ({why})")
