"""Exit codes of every command but `run`, which gives its command's own."""

OK = 0
FINDING = 1
USAGE = 2
