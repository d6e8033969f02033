"""Starts viser servers that can be reached from this machine only."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from robodyn.internals import forks
from robodyn.internals.arguments import count
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import install

HOST = "127.0.0.1"
_LARGEST_PORT = 65535
_quiet = forks.lock()


def start(name: str, port: Any, what: str, origins: Sequence[str] = ()) -> Any:
    """Start a guarded viser server on 127.0.0.1; port 0 is any free port.

    `origins`: origins of pages that may use it besides its own, from `origins_of`.

    Raises:
        UnavailableError: viser cannot be imported (names the extra), or cannot be guarded.
        ArgumentError: no port number, or the port is taken.
    """
    try:
        import viser  # noqa: F401  (the next line would not miss it once it was imported)

        from robodyn.tools.viewer.guard import Server
    except ImportError as error:
        raise UnavailableError(f"{what}: viser cannot be imported here ({error}): {install('viewer')}") from error
    number = count("port", port, 0, _LARGEST_PORT)
    _require_free(number)
    with _silent():
        server = Server(origins, host=HOST, port=number, label=name, verbose=False)
    # Disable viser's share button and request, which would open a tunnel through a server of its developers.
    server.request_share_url = lambda *_, **__: None
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server


def stop(server: Any) -> None:
    """Stop a server and its threads."""
    with _silent():
        server.stop()


def _require_free(port: int) -> None:
    """Raise if the port is taken: viser would silently use another port or none."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as error:
            raise ArgumentError(f"port: got {port}, on which nothing can listen now ({error}); 0 is any") from None


@contextmanager
def _silent() -> Iterator[None]:
    """Silence rich's console, on which viser prints messages whatever its options are."""
    import rich

    with _quiet:
        console = rich.get_console()
        console.quiet, was = True, console.quiet
        try:
            yield
        finally:
            console.quiet = was
