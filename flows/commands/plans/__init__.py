"""Plans: methods of `compose` measured for the command; begin at `bench`."""
