"""The commands push and pull hand on what was asked for, and tell where it went."""

import json

import pytest


@pytest.fixture
def hub(monkeypatch):
    """What the hub was asked for; none is there."""
    asked = []

    def note(*given):
        asked.append(given)
        return "there"

    monkeypatch.setattr("thespis.report.hub.push", note)
    monkeypatch.setattr("thespis.report.hub.pull", note)
    return asked


def test_push_tells_the_address(hub, say):
    assert say("push", "runs/a", "me/a") == ["pushed  there"]
    (line,) = say("push", "runs/a", "me/a", "--replay", "--private", "--json")
    assert json.loads(line) == {"run": "runs/a", "url": "there"}
    assert hub == [("runs/a", "me/a", False, False), ("runs/a", "me/a", True, True)]


def test_pull_tells_the_folder_and_what_to_do_next(hub, say):
    assert say("pull", "me/a") == ["pulled  there", "next    thespis eval there"]
    (line,) = say("pull", "me/a", "--out", "here", "--trust", "--max-gb", "0.5", "--json")
    assert json.loads(line) == {"run": "there"}
    assert hub == [("me/a", None, False, 4.0), ("me/a", "here", True, 0.5)]


def test_a_model_without_a_name_is_asked_for(hub, complain):
    assert "name the model on the hub: thespis push RUN OWNER/NAME" in complain("push", "runs/a")
    assert "name the model on the hub: thespis pull OWNER/NAME" in complain("pull")
    assert hub == []
