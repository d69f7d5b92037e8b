"""The screen; the only importer of textual."""
