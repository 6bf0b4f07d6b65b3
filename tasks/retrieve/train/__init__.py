"""Training data for routing: a corpus comes in, rows with hard negatives go out; begin with `rows`."""
