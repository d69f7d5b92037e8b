"""One SQLite file per run: written live, read back as the same frames (docs/recording.md)."""
