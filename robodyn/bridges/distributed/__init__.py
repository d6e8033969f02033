"""Queries of more states than one machine wants to compute, or to hold, by Dask.

    import robodyn.distributed

    robodyn.distributed.map(dyn, "forward_dynamics", q, qd, tau, out="results.zarr", client=client)
    robodyn.distributed.map(dyn, "inverse_dynamics", range(1000), reduce=robodyn.distributed.Statistics())

States are divided into blocks. Workers get a block's states, or draw them by its seed, and write its results, or reduce
them: nothing is gathered that is as large as the batch.
"""

from robodyn.bridges.distributed.inputs import random_inputs
from robodyn.bridges.distributed.mapping import map
from robodyn.bridges.distributed.reductions import Histogram, Reduction, Statistics

__all__ = ["Histogram", "Reduction", "Statistics", "map", "random_inputs"]
