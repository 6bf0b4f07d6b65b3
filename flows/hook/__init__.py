"""The hook of an agent's host: a prompt comes in, facts on skills that fit it go out; begin with `run`."""
