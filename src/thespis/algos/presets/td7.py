"""Presets of TD7."""

PRESETS: dict[str, dict] = {
    "locomotion": {
        "for": "walking robots: the paper's 25,000 random steps first",
        "train": {"learning_starts": 25_000},
    },
}
