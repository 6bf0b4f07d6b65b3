"""Compose: from a task to a plan of steps, each with a skill or server that serves it; begin at `compose`."""
