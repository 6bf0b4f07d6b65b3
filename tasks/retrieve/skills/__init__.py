"""Served skills as files: a served version comes in, addresses and bytes go out; begin with `catalogue`."""
