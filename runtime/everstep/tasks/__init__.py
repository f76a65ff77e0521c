"""Tasks: one planned execution of a node, from its input to its outcome."""
