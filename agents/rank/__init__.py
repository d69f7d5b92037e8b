"""The probe inside a training rank; the only importer of torch."""
