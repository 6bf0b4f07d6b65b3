"""Compose: from requests whose steps are known to measures of methods' plans; begin at `bench`."""
