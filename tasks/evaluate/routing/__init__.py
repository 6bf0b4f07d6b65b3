"""The bench of routing: corpus, queries and qrels come in, measures go out; begin with `bench`."""
