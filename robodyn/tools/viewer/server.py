"""Servers of viser that only this machine reaches."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from robodyn.internals import forks
from robodyn.internals.arguments import count
from robodyn.internals.errors import ArgumentError, UnavailableError

HOST = "127.0.0.1"
_LARGEST_PORT = 65535
_quiet = forks.lock()


def start(name: str, port: Any, what: str, origins: Sequence[str] = ()) -> Any:
    """A server of viser on this machine's own address, guarded; port 0 is any that is free.

    `origins`: of pages that may use it besides its own, of `origins_of`.

    Raises:
        UnavailableError: viser cannot be imported, which names the extra, or cannot be guarded.
        ArgumentError: the port is none, or taken.
    """
    try:
        import viser  # noqa: F401  (the next line would not miss it once it was imported)

        from robodyn.tools.viewer.guard import Server
    except ImportError as error:
        raise UnavailableError(
            f"{what}: viser cannot be imported here ({error}): pip install 'robodyn[viewer]'"
        ) from error
    number = count("port", port, 0, _LARGEST_PORT)
    _require_free(number)
    with _silent():
        server = Server(origins, host=HOST, port=number, label=name, verbose=False)
    # A button of viser's pages, and whoever reaches the port, would ask for a tunnel through a server of its makers.
    server.request_share_url = lambda *_, **__: None
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server


def stop(server: Any) -> None:
    """End a server, and the threads that it has."""
    with _silent():
        server.stop()


def _require_free(port: int) -> None:
    """viser would take another port, or none and never say so."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as error:
            raise ArgumentError(f"port: got {port}, on which nothing can listen now ({error}); 0 is any") from None


@contextmanager
def _silent() -> Iterator[None]:
    """viser prints where it listens, and that it has ended, by rich and whatever it is told."""
    import rich

    with _quiet:
        console = rich.get_console()
        console.quiet, was = True, console.quiet
        try:
            yield
        finally:
            console.quiet = was
