"""The graph of one skill: nodes and edges come in, a picture goes out; begin with `graph`."""
