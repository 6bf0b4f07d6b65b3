"""Trajectories in, whether each did its task out: not judged is not failed; begin with `protocol`."""
