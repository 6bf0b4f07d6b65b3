"""Serving: one process answers over MCP and HTTP what a root serves; begin with `run`, then `app`."""
