"""Queries of more states than one machine can compute or hold, by Dask.

    import robodyn.distributed

    robodyn.distributed.map(dyn, "forward_dynamics", q, qd, tau, out="results.zarr", client=client)
    robodyn.distributed.map(dyn, "inverse_dynamics", range(1000), reduce=robodyn.distributed.Statistics())

States are divided into blocks. A worker gets a block's states, or draws them from the block's seed, and writes its
results to storage or reduces them. So no process holds the whole batch.
"""

from robodyn.bridges.distributed.inputs import random_inputs
from robodyn.bridges.distributed.mapping import map
from robodyn.bridges.distributed.reductions import Histogram, Reduction, Statistics

__all__ = ["Histogram", "Reduction", "Statistics", "map", "random_inputs"]
