"""What runs, in which order, on which schedule."""

import logging

# What the stages say is for the page of their run and the terminal; Prefect shows it from this level on.
for _name in ("flows", "tasks"):
    logging.getLogger(_name).setLevel(logging.INFO)
