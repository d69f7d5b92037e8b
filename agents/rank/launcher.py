"""Which rank this process is, by the variables that its launcher has set."""

from collections.abc import Mapping

# (rank, local rank, world size), the most specific launcher first: mpirun inside a Slurm job is MPI's.
_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun, and what follows its ways
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)


def place_from_environment(environ: Mapping[str, str]) -> tuple[int, int, int]:
    """Give (rank, local rank, world size); (0, 0, 1) in a process that no launcher started."""
    for names in _VARIABLES:
        rank, local_rank, world_size = (_number(environ.get(name)) for name in names)
        if rank is not None and world_size is not None and rank < world_size:
            return rank, local_rank or 0, world_size
    return 0, _number(environ.get("LOCAL_RANK")) or 0, 1


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
