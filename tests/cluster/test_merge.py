"""Tests of joined checkpoints: members stand in order, and what is alike for all is there once."""

import numpy as np

from thespis.cluster import merge


def parts(*members: int) -> dict:
    """A group of these members, each array filled with their numbers."""
    rows = np.array(members, np.float32)
    sums = {"total": np.stack([rows, 10 * rows])}
    own = {name: {"x": rows, "y": rows[:, None]} for name in ("state", "actors", "hyper", "best")}
    return own | {"progress": {"metric_sums": sums, "clock": np.array([5, 4, 0])}}


def test_members_are_joined_in_the_order_of_groups():
    joined = merge.joined([parts(0, 1), parts(2), parts(3, 4)])
    assert set(joined) == set(merge.PARTS)
    for name in ("state", "actors", "hyper", "best"):
        assert joined[name]["x"].tolist() == [0, 1, 2, 3, 4]
        assert joined[name]["y"].shape == (5, 1)
    assert joined["progress"]["metric_sums"]["total"].tolist() == [
        [0, 1, 2, 3, 4],
        [0, 10, 20, 30, 40],
    ]
    assert joined["progress"]["clock"].tolist() == [5, 4, 0]
