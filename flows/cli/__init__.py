"""The command `skillery`: typer commands by group, their options, the printed answers; begin with `main`."""

import gc

# Modules that load are no garbage: to look for it again and again takes a twentieth of a query's time.
gc.set_threshold(50_000, 20, 100)
