"""Skills of GitHub repositories: rows come in, raw documents go out; begin with `source`."""
