"""The performance model: values in, values out; no clock, file or socket (docs/model.md)."""
