"""Registries of skills: an index comes in, verified skills go out; begin with `well_known`."""
