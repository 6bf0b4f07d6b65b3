"""Agents of the tests, and what they act in."""
