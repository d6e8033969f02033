"""What was measured on this machine, kept for other processes: JSON among the machine code in the cache."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from robodyn._version import __version__
from robodyn.engines.cpu.cache import ObjectCache
from robodyn.errors import UnavailableError


class Subject(NamedTuple):
    """What was measured, in words, and of which device; None for the processor of this machine."""

    what: str
    device: str | None = None

    def key(self) -> str:
        """Under what it is kept: times of another version, processor or device are others.

        Raises:
            ImportError, UnavailableError: nothing is compiled here, so that there is no processor to speak of.
        """
        words: tuple[str, ...] = (self.what, __version__)
        if self.device is None:
            from robodyn.engines.cpu.target import host_target

            words += (host_target().cpu, host_target().level)
        else:
            words += (self.device,)
        return hashlib.blake2b(repr(words).encode(), digest_size=20).hexdigest()


def load(subject: Subject) -> Any:
    """What was kept, as JSON has it; None where nothing was, or what cannot be read."""
    try:
        data = ObjectCache.from_environment().get(subject.key())
        return None if data is None else json.loads(data)
    except (ImportError, UnavailableError, ValueError, RecursionError):
        return None


def store(subject: Subject, found: Any) -> bool:
    """Keep what JSON holds in place of what was kept; whether that worked."""
    cache, key, data = ObjectCache.from_environment(), subject.key(), json.dumps(found).encode()
    cache.put(key, data, subject.what if subject.device is None else f"{subject.what}, {subject.device}")
    return cache.get(key) == data
