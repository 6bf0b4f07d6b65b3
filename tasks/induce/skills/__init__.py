"""Induced skills: their actions as data and as code; begin with `actions`."""
