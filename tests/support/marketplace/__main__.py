"""`python -m tests.support.marketplace` serves a populated marketplace until Ctrl-C; prints its settings."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading

from tests.support.marketplace.faults import Faults
from tests.support.marketplace.populate import change, populate
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.marketplace", description=__doc__)
    parser.add_argument("--repositories", type=int, default=600)
    parser.add_argument("--skills", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--changed", type=float, default=0.0, help="share of skills that is written anew")
    parser.add_argument("--fault-rate", type=float, default=0.0)
    parser.add_argument("--anonymous-limit", type=int, default=60, help="of the GitHub API, an hour")
    parser.add_argument("--port-base", type=int, default=None, help="first of six ports; default: any")
    return parser.parse_args()


def main() -> None:
    # A shell that starts it in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = _options()
    world = World()
    world.github.anonymous_limit = options.anonymous_limit
    populate(world, options.repositories, options.skills, options.seed)
    if options.changed:
        change(world, options.changed)
    market = Marketplace(world, Faults(options.fault_rate), port_base=options.port_base)
    # Ctrl-C may come while the settings are still being printed.
    with contextlib.suppress(KeyboardInterrupt), market:
        for name, value in market.environment().items():
            sys.stdout.write(f"{name}={value}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
