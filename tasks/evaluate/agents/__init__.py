"""Measures agents that act: tasks in environments, with what a method retrieves; begin with `attempt`."""
