"""The command `skillery`: typer commands by group, their options, the printed answers; begin with `main`."""

import gc

# What loads is no garbage: to look for some 70 times while modules load takes a tenth of a query's time.
gc.set_threshold(50_000, 20, 100)
