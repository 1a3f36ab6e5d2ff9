"""What the command `thespis` can do, a function of its arguments for every verb."""
