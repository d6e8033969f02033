"""Properties that are computed once, without a lock."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` without the lock that all instances share before Python 3.12.

        Whoever computes a property for long, such as one that compiles, would hold up those of all other objects; and
        the child of a fork in the meantime would wait for ever, for a thread that it does not have. Two threads may
        compute the same property at once here; all get what the first of them found.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            kept = instance.__dict__
            try:
                return kept[self.attrname]
            except KeyError:
                return kept.setdefault(self.attrname, self.func(instance))
