"""Which induced skills to offer at a step, by task and state; begin with `methods`."""
