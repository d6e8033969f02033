"""What every run asks of tests that take long."""

from collections import Counter
from itertools import product
from types import SimpleNamespace

import pytest
from samples import RARE, lacking, sample, thin_out


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


def test_what_samples_lack_is_found_for_parameters_with_few_values():
    cases = [{"few": k % 3, "many": k} for k in range(30)]
    assert lacking(cases, {0, 3}) == {1, 2}
    assert lacking(cases, {0, 4, 8}) == set()


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"of": 4, "when": "matrix"}, {"matrix": 10, "nightly": 30}),
        ({"of": 4, "rest": "kernels"}, {"": 10, "kernels": 4, "nightly": 26}),
    ],
    ids=str,
)
def test_what_every_run_leaves_to_marks(options, counts, request):
    cases = []
    for n in range(40):
        made = {
            "name": f"it[{n}]",
            "originalname": "it",
            "callobj": lambda n: None,
            "callspec": SimpleNamespace(params={"n": n}, indices={"n": n}, marks=(), id=str(n), _idlist=()),
        }
        case = pytest.Function.from_parent(request.node.parent, **made)
        case.add_marker(pytest.mark.some(**options))
        cases.append(case)
    thin_out(cases)
    marks = [[mark for mark in RARE if case.get_closest_marker(mark)] for case in cases]
    assert Counter(" ".join(each) for each in marks) == counts
