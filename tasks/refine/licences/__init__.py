"""Licences: names and texts come in, an SPDX id with its rule goes out; begin with `resolve`."""
