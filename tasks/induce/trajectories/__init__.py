"""Trajectories: runs of agents are read here, checked and cleaned; begin with `read` and `record`."""
