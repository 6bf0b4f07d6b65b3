"""From what is served, or a bench, to measures; begin with `paging.bench` or `health.probes`."""
