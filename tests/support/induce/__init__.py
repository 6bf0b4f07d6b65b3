"""Trajectories of a small world, that world as a process, and faults for induced skills."""
