"""Blobs: bytes of bundled files come in, and are read back under their digests; begin with `store`."""
