"""Acts like a browser in which somebody moves something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def by_user(handle: Any, value: Any) -> None:
    """What viser does where somebody moves something in a browser."""
    handle._impl.value = value
    for call in handle._impl.update_cb:
        call(SimpleNamespace(client_id=1, client=None, target=handle))
