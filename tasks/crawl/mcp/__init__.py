"""MCP servers from the registry and from awesome lists, as listings and documents; begin with `registry`."""
