"""Measures which skill is offered at which step of a stream of trajectories; begin with `walk`."""
