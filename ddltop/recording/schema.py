"""The tables of a recording, as docs/recording.md describes them. Times are seconds; NULL is not measured."""

from ddltop.wire.phases import PHASES

SCHEMA_VERSION = 1
APPLICATION_ID = 0x64646C74  # "ddlt": tells our files from other SQLite databases

_PHASE_COLUMNS = ",\n  ".join(f"{phase.value} REAL" for phase in PHASES)

TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE frames (
  block INTEGER PRIMARY KEY,
  first_at REAL NOT NULL,
  last_at REAL NOT NULL,
  num_frames INTEGER NOT NULL,
  num_bytes INTEGER NOT NULL,
  payload BLOB NOT NULL
);
CREATE TABLE steps (
  step INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  {_PHASE_COLUMNS},
  num_samples REAL,
  num_micro_steps REAL,
  PRIMARY KEY (step, rank)
) WITHOUT ROWID;
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE ranks (
  rank INTEGER PRIMARY KEY,
  local_rank INTEGER NOT NULL,
  node TEXT NOT NULL,
  pid INTEGER NOT NULL,
  gpu_uuid TEXT,
  state TEXT NOT NULL,
  last_step INTEGER NOT NULL
);
CREATE TABLE findings (
  code TEXT NOT NULL,
  ranks TEXT NOT NULL,
  nodes TEXT NOT NULL,
  severity TEXT NOT NULL,
  share_of_time REAL NOT NULL,
  evidence TEXT NOT NULL,
  why TEXT NOT NULL,
  next_step TEXT NOT NULL,
  first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL,
  is_active INTEGER NOT NULL,
  PRIMARY KEY (code, ranks)
) WITHOUT ROWID;
"""

STEP_COLUMNS = ("step", "rank", *(phase.value for phase in PHASES), "num_samples", "num_micro_steps")
