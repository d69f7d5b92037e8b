"""One per job: takes frames from agents, keeps bounded state, answers viewers."""
