import pytest

from thespis.errors import ThespisError
from thespis.runs.config import make
from thespis.runs.log_keys import SETS, other_names
from thespis.runs.metrics import MetricsLog, read

COLUMNS = ("rollout/ep_rew_mean", "train/critic_loss", "eval/mean_reward")


def tags(folder):
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c  # noqa: F401

    (board,) = (folder / "tensorboard").iterdir()
    content, found = board.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + length])
        found += [value.tag for value in event.summary.value]
        content = content[16 + length :]
    return found


def test_tensorboard_has_the_other_names_and_the_csv_has_ours(tmp_path):
    names = other_names(["cleanrl", "eval/mean_reward=mine"])
    log = MetricsLog(tmp_path, COLUMNS, 1, names)
    for step in (1, 2):
        log.append(step, 0, dict.fromkeys(COLUMNS, 0.5))
    theirs = ["charts/episodic_return", "losses/qf_loss", "mine"]
    assert tags(tmp_path) == 2 * theirs
    log.cut(1)  # the mirror is made anew
    assert tags(tmp_path) == theirs
    assert list(read(tmp_path / "metrics.csv"))[2:] == list(COLUMNS)


def test_sets_and_pairs_are_combined_and_the_later_wins():
    assert other_names([]) == {}
    assert other_names(["a=b", "a=c", "x=y=z"]) == {"a": "c", "x": "y=z"}
    assert other_names(["cleanrl", "time/fps=speed"])["time/fps"] == "speed"
    for name in SETS:
        assert other_names([name]) == SETS[name]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cleanlr", "did you mean cleanrl"),
        ("train/critic_loss", "give OURS=THEIRS"),
        ("=x", "give OURS=THEIRS"),
        (("a=x", "b=x"), "two metrics would be called x"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_run_begins(given, message):
    with pytest.raises(ThespisError, match=message):
        make("sac", {"env": "jax:pendulum", "log_keys": given})
