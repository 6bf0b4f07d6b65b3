"""Datasets as other tools see them: the schema of each table, and the lineage of a run; begin with `schema`."""
