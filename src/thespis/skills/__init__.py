"""The skill workbench: what skills do, how good they are, and how to plan with them."""
