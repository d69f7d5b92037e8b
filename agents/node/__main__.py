"""`python -m ddltop_agents.node`: the agent process of one node."""

import argparse
import os
import signal
import sys
from pathlib import Path

from ddltop.errors import DdltopError
from ddltop.wire.endpoints import RunDir, node_name
from ddltop.wire.environment import ENV_COLLECTOR, ENV_KEY_FILE, ENV_RUN_DIR
from ddltop.wire.locks import hold_lock


def main(arguments: list[str] | None = None) -> int:
    """Run the agent; exit 0 when it is done or another agent serves this node already."""
    parser = argparse.ArgumentParser(prog="ddltop agent", description="The agent of one node.")
    parser.add_argument("--run-dir", type=Path, default=os.environ.get(ENV_RUN_DIR))
    parser.add_argument("--collector", default=os.environ.get(ENV_COLLECTOR), help="tcp://HOST:PORT")
    parser.add_argument("--key-file", type=Path, default=os.environ.get(ENV_KEY_FILE))
    options = parser.parse_args(arguments)
    if options.run_dir is None:
        parser.error(f"no run directory: give --run-dir or set {ENV_RUN_DIR}")
    run_dir = RunDir(Path(options.run_dir))
    # The job's terminal may hang up or send Ctrl-C: the agent ends when its ranks are gone.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hold_lock(run_dir.agent_lock(node_name())) is None:
        return 0
    from .daemon import Agent

    try:
        key_file = Path(options.key_file) if options.key_file else None
        return Agent(run_dir, collector=options.collector, key_file=key_file).run()
    except DdltopError as error:
        print(f"ddltop agent: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
