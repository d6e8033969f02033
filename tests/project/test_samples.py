"""What every run asks of tests that take long."""

from itertools import product

import pytest
from samples import sample


@pytest.mark.parametrize("of", [2, 3, 5, 7])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (4, 30), (12,), (1, 1), (6, 6, 6)])
def test_samples_have_every_value_of_short_parameters(sizes, of):
    names = [f"p{k}" for k in range(len(sizes))]
    cases = [dict(zip(names, each, strict=True)) for each in product(*map(range, sizes))]
    chosen = sample(cases, of)
    assert chosen == sample(cases, of)
    assert len(cases) / of <= len(chosen) <= len(cases) / of + 1 + sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        asked = {cases[number][name] for number in chosen}
        assert len(asked) == size or size > len(cases) / of
