"""The training side of ddltop: probes in the ranks, one agent a node. Never imports textual or rich."""
