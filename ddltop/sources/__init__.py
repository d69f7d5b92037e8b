"""Snapshots of a run, live or recorded, behind one interface."""
