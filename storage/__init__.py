"""Files and tables: knows neither Prefect nor models."""

from __future__ import annotations

import importlib.util
import os
import sys
import types

_REST_CLIENT = "lance_namespace_urllib3_client"


def _leave_out_rest_client() -> None:
    """Import LanceDB with an empty package in place of its REST client, which is never called here.

    The client loads some hundred modules: a third of the time from the shell to an answer.
    """
    spec = importlib.util.find_spec(_REST_CLIENT)
    if _REST_CLIENT in sys.modules or spec is None or spec.submodule_search_locations is None:
        return
    package = types.ModuleType(_REST_CLIENT)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules[_REST_CLIENT] = package


_leave_out_rest_client()
# Threads of NumPy's products wait for more in a loop, some 20 ms after each, on cores that the next step
# needs. NumPy reads this when it is imported: 16 means some .02 ms.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")
