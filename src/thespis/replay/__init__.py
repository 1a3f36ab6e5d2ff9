"""The replay buffer: a ring of rows, priorities, and demonstrations."""
