"""The flows: what runs, in which order, on which schedule; begin with `nightly`."""
