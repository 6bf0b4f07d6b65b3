"""HTTP: the command's answers as JSON, what it costs and whether it lives; begin with `api`."""
