"""Pairs of request and skill: corpora and benches come in, a folder of Parquet goes out; see `make`."""
