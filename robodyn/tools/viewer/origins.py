"""Decides which pages may use a view.

A browser lets any page connect to a server on this machine. The header `Origin` names the page's site. The header
`Host` is the name by which the browser found the server. It reveals DNS rebinding, where an attacker's domain name
points to this machine.
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
    """Check origins of pages, such as "https://hub.example.org" or "http://192.168.1.5:8888"; returns them in lower
    case.

    Raises:
        ArgumentError: no list or tuple of origins.
    """
    if not strict_types.is_a(given, list, tuple):
        raise ArgumentError(f"origins: got {brief(given)}; wanted a list of texts such as 'https://hub.example.org'")
    origins = []
    for each in strict_types.members(given):
        origin = (strict_types.text_or_none(each) or "").lower()
        if not _ORIGIN.fullmatch(origin) or _name(origin) is None:
            raise ArgumentError(
                f"origins: got {brief(each)}; wanted a scheme, a name and, if it is not the usual one, a port, such as "
                "'https://hub.example.org' or 'http://localhost:8888'"
            )
        origins.append(origin)
    return tuple(origins)


def refusal(hosts: Sequence[str], origins: Sequence[str], port: int, allowed: Sequence[str]) -> str | None:
    """Why a request is refused, or None if it is accepted.

    Args:
        hosts: its headers `Host`.
        origins: its headers `Origin`; programs other than browsers send none.
        port: port of the server.
        allowed: further allowed origins, from `origins_of`. Those of this machine are always allowed.
    """
    host = hosts[0].lower() if len(hosts) == 1 else ""
    own_origin = f"http://{host}"
    if not _is_local(_name(own_origin)) and host not in [each.partition("://")[2] for each in allowed]:
        return f"Host is {quoted(', '.join(hosts))}, which is no name of this machine; robodyn.show takes origins=[...]"
    if not origins:
        return None
    origin = origins[0].lower() if len(origins) == 1 else ""
    if origin in (own_origin, f"https://{host}", *allowed) or (
        _is_local(_name(origin)) and origin == _at(origin, port)
    ):
        return None
    return f"a page of {quoted(', '.join(origins))} may not use this view; robodyn.show takes origins=[...]"


def _name(origin: str) -> str | None:
    """The name or address in an origin; None if it has none or an invalid port."""
    try:
        parts = urlsplit(origin)
        return parts.hostname if parts.port is None or parts.port >= 0 else None
    except ValueError:
        return None


def _at(origin: str, port: int) -> str:
    """The http origin with the same name and this port."""
    name = _name(origin) or ""
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _is_local(name: str | None) -> bool:
    """Whether a name always refers to this machine."""
    try:
        return name == "localhost" or ipaddress.ip_address(name or "").is_loopback
    except ValueError:
        return False
