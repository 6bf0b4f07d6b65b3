"""The evaluation of what is served: probes, history, drift, the report; begin with `probes`."""
