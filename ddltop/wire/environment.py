"""Environment variables that the processes of a run read; imports nothing, as every Python of a job loads it."""

ENV_RUN_DIR = "DDLTOP_RUN_DIR"
"""The private directory of the run; set by `ddltop run`. Its presence arms the probes."""

ENV_COLLECTOR = "DDLTOP_COLLECTOR"
"""Endpoint of a collector on another node, tcp://HOST:PORT; agents dial it instead of the run directory's socket."""

ENV_KEY_FILE = "DDLTOP_KEY_FILE"
"""File with the CURVE keys of the run; needed with DDLTOP_COLLECTOR."""

ENV_BUCKETS = "DDLTOP_BUCKETS"
"""`off` leaves DDP's buckets untimed (t_c is then not measured)."""
