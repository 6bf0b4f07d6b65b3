"""The command `skillery`: typer commands by group, their options, the printed answers; begin with `main`."""
