"""Agents that act, for the command: what each method gives them, and every attempt; begin with `bench`."""
