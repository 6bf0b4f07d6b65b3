"""Files and tables: knows neither Prefect nor models."""
