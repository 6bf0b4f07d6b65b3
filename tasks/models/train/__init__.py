"""Run by hand: takes a network in, gives the graph that the package ships; begin with `graph`."""
