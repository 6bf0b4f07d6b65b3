"""Printing for a person: what the commands found; begin with `run`."""
