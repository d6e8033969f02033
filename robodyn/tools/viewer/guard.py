"""A viser server that checks every connection and every message of a browser.

viser accepts connections from pages of any site and writes their messages into its own state unchecked, without an
option to change that. So this module patches its server before the start. `origins` decides which pages may connect.
Messages are accepted only if views use their type and a control could have their values; others are dropped.

Only this module uses names of viser that are not documented. Versions of viser without them are refused.
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

from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install
from robodyn.tools.viewer.origins import refusal

try:
    import msgspec
    import viser
    import websockets.asyncio.server
    from viser import _messages as messages
except ImportError as error:
    raise UnavailableError(f"viser cannot be imported here ({error}): {install('viewer')}") from error

_LARGEST = 1 << 20
"""Largest message in bytes. Messages that views use are below 1 kB."""
_FARTHEST = 1e9
"""Largest coordinate of a dragged handle, m, as for links."""
_UNIT = 1e-2
"""Tolerance of a quaternion's norm."""
_DROPPED = object()
"""Returned for a dropped message. viser chooses handlers by type and has none for this object."""

_CAMERA, _CONTROL, _HANDLE = "ViewerCameraMessage", "GuiUpdateMessage", "TransformControlsUpdateMessage"
_TAKEN = (_CAMERA, _CONTROL, _HANDLE, "TransformControlsDragStartMessage", "TransformControlsDragEndMessage")


class Server(viser.ViserServer):
    """viser's server, patched before its start.

    `origins`: origins of pages that may use it besides those of this machine.

    Raises:
        UnavailableError: this version of viser cannot be patched.
    """

    def __init__(self, origins: Sequence[str], **options: Any) -> None:
        self._origins, self._guarded = origins, False
        super().__init__(**options)
        if not self._guarded:
            self.stop()
            raise _unknown("it does not start as was expected")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_websock_server":  # viser makes this attribute and starts the server in one call
            self._guard(value)

    def bound_camera(self, nearest: float, farthest: float) -> None:
        """Set the least and the largest distance of cameras from the point that they orbit, m.

        viser's own bounds suit only robots of ordinary size; older versions have none.
        """
        for bound, distance in {"Min": nearest, "Max": farthest}.items():
            kind = getattr(messages, f"SetCamera{bound}OrbitDistanceMessage", None)
            if kind is not None:
                self._websock_server.queue_message(kind(distance))

    def _guard(self, inner: Any) -> None:
        """Make `inner` read messages by `deserialize`, and listen by `_serve`."""
        worker = getattr(type(inner), "_background_worker", None)
        if not isinstance(worker, types.FunctionType) or not hasattr(inner, "_message_class"):
            raise _unknown("its server of websockets is another")
        inner._message_class = self
        # viser's own function with a different global `websockets`.
        socket = _Proxy(websockets.asyncio.server, serve=functools.partial(self._serve, inner))
        names = {**worker.__globals__, "websockets": _Proxy(websockets, asyncio=_Proxy(None, server=socket))}
        inner._background_worker = functools.partial(types.FunctionType(worker.__code__, names), inner)

    def _serve(self, inner: Any, *where: Any, process_request: Any, **options: Any) -> Any:
        """Called by viser to listen for connections, instead of `websockets.asyncio.server.serve`."""

        def checked(connection: Any, request: Any) -> Any:
            hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
            why = refusal(hosts, origins, inner._port, self._origins)
            return (
                process_request(connection, request) if why is None else connection.respond(HTTPStatus.FORBIDDEN, why)
            )

        self._guarded = True
        # Do not print errors of connections, which clients cause.
        options |= {"max_size": _LARGEST, "logger": logging.Logger("robodyn.tools.viewer", logging.CRITICAL)}
        return websockets.asyncio.server.serve(*where, process_request=checked, **options)

    def deserialize(self, raw: bytes) -> Any:
        """Decode a received message; `_DROPPED` if it is not accepted."""
        try:
            fields = msgspec.msgpack.decode(raw)
            kind = fields.pop("type")
            if kind not in _TAKEN:
                return _DROPPED
            message = msgspec.convert(fields, getattr(messages, kind))
            sound = self._fits(message) if kind == _CONTROL else _is_sound(message)
        except Exception:  # a malformed message may raise anything
            return _DROPPED
        return message if sound else _DROPPED

    def _fits(self, message: Any) -> bool:
        """Whether a message sets a control to a value that it can have."""
        control = self.gui._gui_input_handle_from_uuid.get(message.uuid)
        if control is None or control.disabled or set(message.updates) != {"value"}:
            return False
        value, current = message.updates["value"], control.value
        if isinstance(current, bool):
            return isinstance(value, bool)
        if isinstance(current, str):
            return value in getattr(control, "options", ())
        if not isinstance(current, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return False
        # Browsers round values to steps of the control.
        return bool(control.min - control.step <= value <= control.max + control.step)


class _Proxy:
    """Proxy of an object with some attributes replaced."""

    def __init__(self, original: Any, **replaced: Any) -> None:
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _is_sound(message: Any) -> bool:
    """Whether all numbers of a message are finite, quaternions are unit, and positions are not too far away."""
    fields = dataclasses.asdict(message)
    if not all(map(math.isfinite, _numbers(fields.values()))):
        return False
    if "wxyz" in fields and abs(math.hypot(*fields["wxyz"]) - 1.0) > _UNIT:
        return False
    return "position" not in fields or max(map(abs, fields["position"])) <= _FARTHEST


def _numbers(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, tuple):
            yield from _numbers(value)
        elif isinstance(value, int | float):
            yield value


def _unknown(why: str) -> UnavailableError:
    return UnavailableError(f"show: viser {viser.__version__} cannot be guarded against pages of others ({why})")
