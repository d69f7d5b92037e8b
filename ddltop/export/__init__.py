"""A snapshot as text or JSON."""
