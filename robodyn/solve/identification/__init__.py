"""Identification of inertial parameters, armature and friction from measured motions and torques."""
