"""Reading one skill: what `show` and `diff` do; begin with `reading`."""
