"""MCP: the tools and the Skills extension on the official SDK's low-level server; begin with `server`."""
