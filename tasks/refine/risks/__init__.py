"""Risk findings: a body comes in, findings go out, never a verdict; begin with `scan`."""
