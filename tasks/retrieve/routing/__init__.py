"""Routing: a task comes in, ranked skills go out; begin with `router`."""
