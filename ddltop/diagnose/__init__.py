"""Rules that turn evidence into findings; pure, one file a rule (docs/diagnoses.md)."""
