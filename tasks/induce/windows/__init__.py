"""Windows of trajectories: what an agent met at a step, and the skills that do what it did next."""
