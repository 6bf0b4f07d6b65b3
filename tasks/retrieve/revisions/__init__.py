"""Skills as they are, as they were, and what changed in between; begin with `show`."""
