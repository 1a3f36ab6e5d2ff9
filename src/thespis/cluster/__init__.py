"""Training on several machines by Ray: starting or joining it, and populations that survive it."""
