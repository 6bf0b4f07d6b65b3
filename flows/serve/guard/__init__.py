"""The guard of the HTTP server: who may ask, how much, how long and how many at once; begin with `gate`."""
