"""Robots inside the simulators that people use: one module for each, imported when it is asked for.

`robodyn.simulators.mujoco`, `pybullet`, `gymnasium`, `drake` and `ros` need their library, but for `ros`, when they are
used; robodyn itself needs none of them.
"""
