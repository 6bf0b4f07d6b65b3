"""The flows: what runs, in which order, on which schedule; begin with `nightly`."""

import logging

# Stages log for the page of their run and for the terminal; Prefect shows messages from this level on.
for _name in ("flows", "tasks"):
    logging.getLogger(_name).setLevel(logging.INFO)
