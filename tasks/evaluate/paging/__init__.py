"""The bench of paging: documents and requests come in, measures go out; begin with `bench`."""
