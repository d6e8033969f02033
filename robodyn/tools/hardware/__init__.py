"""Gradients as hardware: fixed-point datapaths for FPGAs, with bit-exact simulation.

    d = rd.hardware.datapath(model, width=18, multipliers=64, box=rd.hardware.Box(qd=2.0, qdd=10.0))
    dqdd_dq, dqdd_dqd = d.evaluate(q, qd, qdd, Minv)
    d.write("folder")

`program` traces a robot's gradient into sums and products, `passes` simplifies it, `ranges` and `formats` choose
fixed-point formats for a box of states, `schedule` assigns cycles, and `verilog` prints the circuit. `model` computes
the circuit's results in NumPy, exact to the bit.
"""

from robodyn.tools.hardware.datapaths import Datapath, datapath
from robodyn.tools.hardware.ranges import Box
from robodyn.tools.hardware.simulate import SimulationReport
from robodyn.tools.hardware.synthesis import Resources

__all__ = ["Box", "Datapath", "Resources", "SimulationReport", "datapath"]
