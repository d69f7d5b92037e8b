"""A real DDP training to look at, with faults that can be injected."""
