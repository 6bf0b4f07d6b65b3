"""Well-known registries of skills: an origin's index comes in or goes out; begin with `formats`."""
