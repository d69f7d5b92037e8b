"""The agent of one node: joins its ranks, samples its sensors, talks to the collector."""
