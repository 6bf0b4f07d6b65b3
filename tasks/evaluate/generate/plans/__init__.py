"""Plans that are known beforehand: requests of several steps, put together out of what served rows say."""
