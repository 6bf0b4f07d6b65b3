"""LanceDB, known to this folder alone: rows come in, and are read at a version; begin with `tables`."""
