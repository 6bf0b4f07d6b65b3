"""Pairs: skills come in, authors' own requests with texts of their skills go out; begin with `make`."""
