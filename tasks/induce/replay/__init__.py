"""A skill and the windows it was learned from in, whether it does them again out; begin with `verify`."""
