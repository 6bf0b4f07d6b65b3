"""Skills on this machine: a folder or a table comes in, raw documents go out; begin with `directory`."""
