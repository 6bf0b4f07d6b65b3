"""A registry of served skills: a version comes in, indexes and archives go out; begin with `offers`."""
