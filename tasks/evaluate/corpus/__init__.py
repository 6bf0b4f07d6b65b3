"""Corpora to measure: a root, Parquet or JSON lines come in, documents go out; begin with `read`."""
