"""Datasets as other tools see them: the schema of each table, the lineage of a run; begin with `schema`."""
