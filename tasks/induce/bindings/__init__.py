"""Where the values of actions come from: out of a window of a trajectory come the skills that do it again."""
