"""Numbers of joints in another order."""

from __future__ import annotations

import numpy as np
import pytest

import robodyn as rd


def test_there_and_back():
    order = rd.JointOrder(["a", "b", "c"], ["c", "a", "b"])
    values = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(order(values), values[:, [2, 0, 1]])
    assert np.array_equal(order.back(order(values)), values)
    assert np.array_equal(order([1, 2, 3]), [3, 1, 2])
    assert order.index.tolist() == [2, 0, 1] and order.missing == ()


def test_partial_orders():
    order = rd.JointOrder(["a", "b"], ["c", "b", "a"], strict=False)
    assert order.missing == ("c",)
    assert np.array_equal(order(np.array([1.0, 2.0])), [0.0, 2.0, 1.0])
    assert np.array_equal(order(np.array([1.0, 2.0]), fill=[7.0, 8.0, 9.0]), [7.0, 2.0, 1.0])
    assert np.array_equal(order.back(np.array([5.0, 6.0, 7.0])), [7.0, 6.0])
    fewer = rd.JointOrder(["a", "b", "c"], ["b"], strict=False)
    assert np.array_equal(fewer(np.eye(3))[:, 0], [0.0, 1.0, 0.0])
    assert np.array_equal(fewer.back(np.array([4.0]), fill=np.nan), [np.nan, 4.0, np.nan], equal_nan=True)


def test_nothing_comes():
    order = rd.JointOrder([], ["a", "b"], strict=False)
    assert np.array_equal(order(np.zeros((3, 0)), fill=2.0), np.full((3, 2), 2.0))
    assert order.back(np.zeros((3, 2))).shape == (3, 0)


def test_tensors():
    torch = pytest.importorskip("torch")
    order = rd.JointOrder(["a", "b"], ["c", "b", "a"], strict=False)
    found = order(torch.tensor([1.0, 2.0]), fill=-1.0)
    assert isinstance(found, torch.Tensor) and found.tolist() == [-1.0, 2.0, 1.0]


def test_errors_name_what_is_missing():
    with pytest.raises(rd.ArgumentError, match='names_from lacks "c"; names_to lacks "a"; wanted the same joints'):
        rd.JointOrder(["a", "b"], ["b", "c"])
    with pytest.raises(rd.ArgumentError, match='names_to: "b" occurs twice'):
        rd.JointOrder(["a", "b"], ["b", "b"])
    with pytest.raises(rd.ArgumentError, match="names_from: got 'ab'; wanted a sequence of names"):
        rd.JointOrder("ab", ["a"])
    with pytest.raises(rd.ArgumentError, match="names_to: got"):
        rd.JointOrder(["a"], [1])
    with pytest.raises(rd.ArgumentError, match=r"values: got shape \(2,\); wanted \(..., 3\)"):
        rd.JointOrder(["a", "b", "c"], ["c", "b", "a"])(np.zeros(2))


def test_integers_take_what_is_filled_in():
    order = rd.JointOrder(["a", "b"], ["a", "c"], strict=False)
    assert order([1, 2], fill=0.5).tolist() == [1.0, 0.5]
    assert np.isnan(order(np.array([1, 2]), fill=np.nan)[1])
    assert order([1, 2]).dtype == np.asarray([1, 2]).dtype
    assert order(np.array([1, 2], dtype=np.int8), fill=300).tolist() == [1, 300]
    assert order(np.array([1, 2], dtype=np.float32), fill=0.5).dtype == np.float32
    assert order(np.array([True, False]), fill=0.5).tolist() == [1.0, 0.5]
    torch = pytest.importorskip("torch")
    assert order(torch.tensor([1, 2]), fill=0.5).tolist() == [1.0, 0.5]
    nothing = rd.JointOrder([], ["a"], strict=False)(torch.zeros(3, 0), fill=2.0)
    assert isinstance(nothing, torch.Tensor) and nothing.tolist() == [[2.0]] * 3


class _Evil:
    def __getattr__(self, name):
        raise RuntimeError("evil")


def test_what_cannot_be_filled_in():
    order = rd.JointOrder(["a"], ["b", "c"], strict=False)
    for fill in ([1.0, 2.0, 3.0], np.ones((3, 2)), "x", None, _Evil(), [[1], [1, 2]]):
        with pytest.raises(rd.ArgumentError, match="fill: got"):
            order([1.0], fill=fill)
    for values in (_Evil(), "x", None, [[1], [1, 2]], 3.0, np.ones((1,) * 40)):
        with pytest.raises(rd.ArgumentError, match="values: got"):
            order(values)
    jax = pytest.importorskip("jax")
    with pytest.raises(rd.ArgumentError, match=r"values: got .*, an array of jax"):
        order(jax.numpy.ones(1))


def test_many_names_take_no_time():
    """A list would be searched for each: a minute and more."""
    names = [f"j{i}" for i in range(100_000)]
    order = rd.JointOrder(names, names[::-1])
    assert order.index[0] == len(names) - 1
    with pytest.raises(rd.ArgumentError, match="occurs twice"):
        rd.JointOrder([*names, *names], names)
