"""What tests of quick calls share."""

from __future__ import annotations

import functools

import pytest

import robodyn as rd
from robodyn.queries.quick import query
from robodyn.questions import QUESTIONS


@pytest.fixture
def passed_on(monkeypatch):
    """Names of methods that answered a call, in order."""
    seen = []

    def listed(name, method):
        @functools.wraps(method)
        def answer(*args, **options):
            seen.append(name)
            return method(*args, **options)

        return answer

    for name in QUESTIONS:
        (owner,) = (each for each in rd.Dynamics.__mro__ if name in vars(each))
        monkeypatch.setattr(owner, name, query(listed(name, getattr(rd.Dynamics, name))))
    return seen
