"""Routing on benches: methods by name, their settings, what they come to; begin at `bench`."""
