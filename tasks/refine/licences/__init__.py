"""Licences: names and texts come in, an SPDX id and the rule that decided go out; begin with `resolve`."""
