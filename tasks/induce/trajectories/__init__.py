"""Trajectories: recorded runs of agents are read here, and cleaned; begin with `record`."""
