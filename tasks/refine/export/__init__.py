"""The export: the corpus comes in, files and a datasheet go out; begin with `export`."""
