"""Training of what compose needs: requests with marked steps come in, weights go out; begin at `training`."""
