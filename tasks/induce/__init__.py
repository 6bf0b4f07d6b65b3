"""What agents did becomes skills: trajectories in, verified skills out; begin with `windows.recurrence`."""
