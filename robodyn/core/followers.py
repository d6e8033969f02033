"""Limits of joints that other joints mimic: the range that a joint and all its followers allow together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of position (nq_tree,) and of velocity (nv_tree,), of every joint."""

    lower: Array
    upper: Array
    velocity: Array

    @staticmethod
    def own(fields: Mapping[str, Array]) -> Limits:
        """Each joint's own limits; `fields` of a `Model`, by name."""
        return Limits(fields["tree_lower"], fields["tree_upper"], fields["tree_velocity"])

    @staticmethod
    def left(fields: Mapping[str, Array]) -> Limits:
        """Limits of joints that all their followers allow as well.

        Where no range remains, lower is above upper, or the velocity is negative. A follower at m q + o with a range of
        lo to hi allows q from (lo - o) / m to (hi - o) / m, swapped if m is negative. A follower with a velocity limit
        v allows v / |m|. A follower with m = 0 does not move and restricts nothing.
        """
        own = Limits.own(fields)
        followers = np.flatnonzero(fields["mimics"] >= 0)
        followers = followers[fields["q_multiplier"][fields["q_start"][followers]] != 0.0]
        q, v = fields["q_start"][followers], fields["v_start"][followers]
        m, o = fields["q_multiplier"][q], fields["q_offset"][q]
        leaders = fields["mimics"][followers]
        left = Limits(own.lower.copy(), own.upper.copy(), own.velocity.copy())
        with np.errstate(over="ignore"):
            ends = [(each[q] - o) / m + 0.0 for each in (own.lower, own.upper)]  # + 0.0 turns -0.0 into 0.0
            np.maximum.at(left.lower, fields["q_start"][leaders], np.where(m > 0.0, *ends))
            np.minimum.at(left.upper, fields["q_start"][leaders], np.where(m > 0.0, *ends[::-1]))
            np.minimum.at(left.velocity, fields["v_start"][leaders], own.velocity[v] / np.abs(m))
        return left

    @staticmethod
    def used(fields: Mapping[str, Array]) -> Limits:
        """Limits that followers allow as well; where no range remains, each joint's own limits."""
        own = Limits.own(fields)
        if not (fields["mimics"] >= 0).any():
            return own
        left = Limits.left(fields)
        room, moves = left.lower <= left.upper, left.velocity >= 0.0
        lower, upper = (np.where(room, *each) for each in ((left.lower, own.lower), (left.upper, own.upper)))
        return Limits(lower, upper, np.where(moves, left.velocity, own.velocity))
