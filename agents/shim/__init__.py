"""The folder that `ddltop run` puts on PYTHONPATH."""
