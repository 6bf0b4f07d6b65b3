"""Skills of any git repository: a URL comes in, raw documents go out; begin with `source`."""
