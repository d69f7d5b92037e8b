"""Ranks that only pretend to train but speak the real agent protocol."""
