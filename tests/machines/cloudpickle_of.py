"""Copies of functions as workers get them; without cloudpickle, the functions."""

from __future__ import annotations


def copied(function):
    try:
        import cloudpickle
    except ImportError:
        return function
    return cloudpickle.loads(cloudpickle.dumps(function))
