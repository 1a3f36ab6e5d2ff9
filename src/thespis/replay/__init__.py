"""The replay buffer: a ring of rows, priorities, and demonstrations that are drawn alike."""
