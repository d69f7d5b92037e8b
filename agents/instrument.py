"""`ddltop.instrument(...)`: measure this training process from inside the script."""

import os
import sys
from pathlib import Path
from typing import Any

from ddltop.wire.environment import ENV_RUN_DIR

from . import attach


def instrument(model: Any = None, optimizer: Any = None) -> Any:
    """Measure every step of this process from now on and return `model`.

    Call it once per rank, best at the top of the script: a comm hook of your own then runs inside ours, and the
    first step is seen whole. `model` is a DistributedDataParallel instance that exists already; other models, and
    `optimizer`, are found by themselves at their first step. Under `ddltop run` it changes nothing. Never raises: a
    failure is one line on stderr.
    """
    try:
        if not os.environ.get(ENV_RUN_DIR):
            os.environ[ENV_RUN_DIR] = str(_shared_run_dir())
        attach.arm()
        if _is_ddp(model):
            from .rank import probe

            probe.on_ddp_built(model)
        elif optimizer is not None:
            from .rank import probe

            probe.on_optimizer_step(optimizer)
    except Exception as error:  # noqa: BLE001
        print(f"ddltop: this rank is not measured: {error!r}", file=sys.stderr)  # noqa: T201
    return model


def _is_ddp(model: Any) -> bool:
    module = sys.modules.get("torch.nn.parallel.distributed")
    return module is not None and isinstance(model, module.DistributedDataParallel)


def _shared_run_dir() -> Path:
    """Give the run directory that all ranks of this job on this machine agree on, and describe the run in it."""
    import time

    import ddltop
    from ddltop.wire.endpoints import RunDir, RunFile, node_name, private_directory, runs_root

    # Ranks of one launcher share their parent; a process that was started alone is its own job.
    owner = os.getppid() if "LOCAL_RANK" in os.environ else os.getpid()
    run_dir = RunDir(private_directory(runs_root() / f"job-{owner}-{_start_ticks(owner)}"))
    if run_dir.read() is None:
        command = tuple(sys.argv) or (sys.executable,)
        started_us = time.time_ns() // 1000
        run_dir.write(
            RunFile(
                run_id=run_dir.run_id,
                command=command,
                started_us=started_us,
                version=ddltop.__version__,
                node=node_name(),
            )
        )
    return run_dir.path


def _start_ticks(pid: int) -> str:
    """Start time of a process in clock ticks since boot (proc(5), field 22): tells it from a later one of that pid."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[19]
