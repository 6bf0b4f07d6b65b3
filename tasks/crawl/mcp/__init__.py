"""MCP servers from the registry and from awesome lists, as rows of a list; begin with `registry`."""
