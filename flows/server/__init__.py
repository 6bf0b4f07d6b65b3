"""Prefect's servers that Skillery starts itself: a temporary one for a command, a lasting one for `up`."""
