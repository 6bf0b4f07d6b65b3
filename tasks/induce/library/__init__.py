"""The library of induced skills: kept trajectories in, verified skills out; begin with `build`."""
