"""The catalogue: pages of skills for a person with a browser; begin with `routes`, then `skill_page`."""
