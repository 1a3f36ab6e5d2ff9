"""Networks and what belongs to them: encoders, distributions, normalisation, optimisers."""
