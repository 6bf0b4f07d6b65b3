"""Asks a model hub whether it has a model, so that a wrong name ends a run at once and not after minutes."""

from __future__ import annotations

import re

from storage.errors import TerminalError

_SECONDS = 10.0  # for a connection, and again for an answer; libraries that fetch models try for minutes
_CONNECTION = re.compile(r"^<?HTTPS?Connection.*?[)>]: ")


def require_on_hub(name: str) -> None:
    """Return if a model can be fetched: its files were fetched before, or the hub has it.

    The hub is Hugging Face's, or what HF_ENDPOINT names; HF_TOKEN and HF_HUB_OFFLINE hold as they do there.
    `name` is no folder and comes with no package.

    Raises:
        TerminalError: The name has another form, the hub has no such model, or it cannot be asked.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache  # noqa: PLC0415 (most runs have their encoder)
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    api = HfApi()
    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        api.model_info(name, timeout=_SECONDS)
    except HFValidationError as error:
        msg = f"model {name!r} is no folder, and a model of a hub is named OWNER/MODEL"
        raise TerminalError(msg) from error
    except GatedRepoError as error:
        msg = f"model {name!r} is given on terms: accept them at {api.endpoint}/{name}, and set HF_TOKEN"
        raise TerminalError(msg) from error
    except RepositoryNotFoundError as error:
        msg = f"model {name!r} is no folder, and {api.endpoint} has none of that name, or not for this token"
        raise TerminalError(msg) from error
    except OSError as error:  # what requests raises, and the hub's own errors
        msg = f"model {name!r} is no folder, and {api.endpoint} cannot be asked for it: {_why(error)}"
        raise TerminalError(msg) from error


def _why(error: OSError) -> str:
    """Return the innermost reason that the layers of an HTTP client wrap, without its connection.

    `requests` wraps what urllib3 raises as an argument, and urllib3 names what it met as `reason`; an answer
    other than 2xx is an error of its own, whose text begins with the status.
    """
    inner: BaseException | None = error
    while inner is not None:
        reason = getattr(inner, "reason", None)
        nested = [a for a in (reason, *inner.args) if isinstance(a, BaseException)]
        if not nested:
            break
        inner = nested[0]
    said = str(inner).strip().splitlines() or [type(error).__name__]
    return _CONNECTION.sub("", said[0])
