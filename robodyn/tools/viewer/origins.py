"""Which pages may use a view.

A browser lets any page connect to a server on this machine, and says in the header `Origin` which page it is. `Host` is
the name by which it found the server: a name that its owner has pointed to this machine (DNS rebinding) is told by it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted

_ORIGIN = re.compile(r"https?://[^/?#@\s]+", re.ASCII)


def origins_of(given: Any) -> tuple[str, ...]:
    """Origins of pages, such as "https://hub.example.org" or "http://192.168.1.5:8888", in small letters.

    Raises:
        ArgumentError: no list or tuple of them.
    """
    if not strict_types.is_a(given, list, tuple):
        raise ArgumentError(f"origins: got {brief(given)}; wanted a list of texts such as 'https://hub.example.org'")
    found = []
    for each in strict_types.members(given):
        origin = (strict_types.text_or_none(each) or "").lower()
        if not _ORIGIN.fullmatch(origin) or _name(origin) is None:
            raise ArgumentError(
                f"origins: got {brief(each)}; wanted a scheme, a name and, if it is not the usual one, a port, such as "
                "'https://hub.example.org' or 'http://localhost:8888'"
            )
        found.append(origin)
    return tuple(found)


def refusal(hosts: Sequence[str], origins: Sequence[str], port: int, allowed: Sequence[str]) -> str | None:
    """Why a request is refused, or None where it is answered.

    Args:
        hosts: its headers `Host`.
        origins: its headers `Origin`; programs that are no browsers send none.
        port: where the server listens.
        allowed: origins that are answered besides those of this machine, of `origins_of`.
    """
    host = hosts[0].lower() if len(hosts) == 1 else ""
    here = f"http://{host}"
    if not _is_local(_name(here)) and host not in [each.partition("://")[2] for each in allowed]:
        return f"Host is {quoted(', '.join(hosts))}, which is no name of this machine; robodyn.show takes origins=[...]"
    if not origins:
        return None
    origin = origins[0].lower() if len(origins) == 1 else ""
    if origin in (here, f"https://{host}", *allowed) or (_is_local(_name(origin)) and origin == _at(origin, port)):
        return None
    return f"a page of {quoted(', '.join(origins))} may not use this view; robodyn.show takes origins=[...]"


def _name(origin: str) -> str | None:
    """The name or address in an origin; None where there is none, or no valid port."""
    try:
        parts = urlsplit(origin)
        return parts.hostname if parts.port is None or parts.port >= 0 else None
    except ValueError:
        return None


def _at(origin: str, port: int) -> str:
    """The origin by http of the same name, at a port."""
    name = _name(origin) or ""
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _is_local(name: str | None) -> bool:
    """Whether a name is always this machine."""
    try:
        return name == "localhost" or ipaddress.ip_address(name or "").is_loopback
    except ValueError:
        return False
