"""Types of nodes: fragments come in, a type and its confidence go out; begin with `protocol`."""
