"""Files and tables: knows neither Prefect nor models."""

import os

# LanceDB says on stderr that it makes a table; it reads this when it is first imported.
os.environ.setdefault("LANCE_LOG", "error")
