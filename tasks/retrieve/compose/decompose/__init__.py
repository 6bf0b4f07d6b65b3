"""Decompose: from a task to its steps, locally, and again with what is served as hints; begin at `rounds`."""
