"""What each command does, without Prefect: options come in, an answer as a dictionary goes out."""
