"""Shares runs on the Hugging Face hub: `push` and `pull`, with the library of the extra `hub`.

Only files that Thespis itself writes and reads are uploaded or downloaded, and none of them can run
code: JSON, CSV, safetensors, a picture, a video. A downloaded run is untrusted like any other.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from thespis.errors import ThespisError, shown
from thespis.report.model_card import model_card
from thespis.report.plots import curves_of, learning_curve
from thespis.report.source import RETURN, Source
from thespis.runs import checkpoint, files, trust
from thespis.runs.config import DIVERSITY
from thespis.runs.directory import JSON_BYTES, find, path_of, read_config
from thespis.runs.naming import default_out
from thespis.values import convert

CARD, CURVE, VIDEO = "README.md", "plots/learning_curve.png", "videos/replay"
POLICIES, TABLES, VIDEOS = ("best", "checkpoints"), ("metrics.csv", "lineage.csv"), (".mp4", ".gif")
KNOWN = {  # the files that are pulled, and the most bytes of each; weights have a common limit
    r"(config|status)\.json": JSON_BYTES,
    r"(metrics|lineage)\.csv": 2**28,
    r"plots/learning_curve\.png": 2**25,
    r"videos/replay\.(mp4|gif)": 2**28,
    r"(best|checkpoints)/[0-9]{12,18}/manifest\.json": JSON_BYTES,
    r"(best|checkpoints)/[0-9]{12,18}/[a-z]+\.safetensors": None,
}
TOKEN = "run hf auth login, or set HF_TOKEN"
MOST = 100  # files of a run
ITS_OWN = (CARD, ".gitattributes")  # files on the hub that are not pulled
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def push(folder: Path | str, name: str, replay: bool = False, private: bool = False) -> str:
    """Uploads a run as the model OWNER/NAME and returns its address.

    A run that was pushed there before is replaced. Without its `replay`, a run can be evaluated,
    played and exported, but not resumed.
    """
    source, name = Source(find(folder)), checked(name)
    with tempfile.TemporaryDirectory() as aside:
        content = contents(source, name, replay, Path(aside))
        library = imported("push")
        if library.get_token() is None:
            raise ThespisError(f"push needs a token for the hub: {TOKEN}")
        with asking(library, f"push {name}"):
            api = library.HfApi()
            api.create_repo(name, private=private or None, exist_ok=True)
            existing = [file.rfilename for file in api.model_info(name).siblings or ()]
            if foreign := [x for x in existing if x not in ITS_OWN and bound(x) == 0]:
                raise ThespisError(
                    f"{name} on the hub has files that do not belong to a run "
                    f"({shown(foreign[0])}): choose another name"
                )
            old = [x for x in existing if x not in content and x not in ITS_OWN]
            operations = [library.CommitOperationAdd(*pair) for pair in content.items()]
            operations += [library.CommitOperationDelete(path) for path in old]
            message = f"Upload {source.config['algo']} on {source.config['env']}"
            api.create_commit(name, operations, commit_message=shown(message))
            return f"{api.endpoint}/{name}"


def contents(source: Source, name: str, replay: bool, aside: Path) -> dict[str, str | bytes]:
    """Returns {path on the hub: local file or its content} of all that is uploaded."""
    folder, config = source.folder, read_config(source.folder)
    config.pop(trust.IDENTITY, None)  # which stays with this user
    status = {"state": source.status["state"], "step": source.status["step"]}
    content: dict[str, str | bytes] = {
        "config.json": json.dumps(config, indent=2).encode(),
        "status.json": json.dumps(status).encode(),
    }
    weights = [path for kind in POLICIES for path in checkpoint.latest(folder / kind)[:1]]
    if not weights:
        raise ThespisError(f"{folder} has no checkpoint to push: train it first")
    for path in weights:
        skip = () if replay else ("replay",)
        for file in (path / checkpoint.MANIFEST, *checkpoint.verified(path, skip)):
            step = path.name.removesuffix(checkpoint.REPLACED)
            content[f"{path.parent.name}/{step}/{file.name}"] = str(file)
    for table in TABLES:
        if files.regular(folder / table):
            content[table] = str(folder / table)
    curve = None
    with suppress(ThespisError):  # never evaluated
        metric = DIVERSITY if DIVERSITY in source.table else RETURN
        drawn = learning_curve(curves_of([folder], metric), aside / "curve.png", metric)
        content[CURVE], curve = str(drawn), CURVE
    if file := newest_video(folder):
        content[f"{VIDEO}{file.suffix}"] = str(file)
    video = f"{VIDEO}{file.suffix}" if file else None
    content[CARD] = model_card(source, name, curve, video).encode()
    return content


def newest_video(folder: Path) -> Path | None:
    place = files.inside(folder, "videos")
    videos = [x for x in place.glob("*") if x.suffix in VIDEOS and files.regular(x)]
    return max(videos, key=lambda file: file.lstat().st_mtime, default=None)


def pull(
    name: str, out: Path | str | None = None, trusted: bool = False, max_gb: float = 4.0
) -> Path:
    """Downloads a run into `out`/hub/OWNER/NAME, which must not exist, and returns that folder.

    Unless it is `trusted`, it may name no code to import (docs/security.md).
    """
    name = checked(name)
    folder = path_of("out", default_out() if out is None else out) / "hub" / name
    if os.path.lexists(folder):
        raise ThespisError(f"{folder} already exists: use it, move it, or give another --out")
    library = imported("pull")
    api = library.HfApi()
    with asking(library, f"pull {name}"):
        about = api.model_info(name, files_metadata=True)
    sizes = {x.rfilename: x.size for x in about.siblings or () if bound(x.rfilename) != 0}
    refuse_sizes(name, sizes, max_gb)
    with files.writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with files.new_folder(folder.parent) as aside:
            for path, size in sizes.items():
                with asking(library, f"pull {name}"):
                    place = aside / "download"
                    api.hf_hub_download(name, path, revision=about.sha, local_dir=place)
                file = files.inside(aside, "download", path)
                if not files.regular(file) or file.lstat().st_size != size:
                    raise ThespisError(f"{name} on the hub: {path} is not of the expected size")
                (aside / "run" / path).parent.mkdir(parents=True, exist_ok=True)
                os.rename(file, aside / "run" / path)
            verify(name, aside / "run")
            trust.check(folder, read_config(aside / "run"), trusted)
            os.rename(aside / "run", folder)
    return folder


def refuse_sizes(name: str, sizes: dict[str, int | None], max_gb: float) -> None:
    """Refuses a model that is not a run, or larger than the user and Thespis allow."""
    if "config.json" not in sizes or not any(path.startswith(POLICIES) for path in sizes):
        raise ThespisError(
            f"{name} on the hub is not a run of Thespis: it lacks a config or weights"
        )
    if len(sizes) > MOST:
        raise ThespisError(f"{name} on the hub has {len(sizes)} files, more than {MOST}")
    for path, size in sizes.items():
        most = bound(path)
        if type(size) is not int or (most is not None and size > most):
            raise ThespisError(f"{name} on the hub: {path} has {size} bytes, more than {most}")
    total = sum(size or 0 for size in sizes.values()) / 1e9
    if total > max_gb:
        raise ThespisError(
            f"{name} on the hub has {total:.3g} GB, more than {max_gb:g}: give a larger --max-gb "
            "to download it"
        )


def verify(name: str, folder: Path) -> None:
    """Refuses a download whose weights are not the safetensors files that their manifests name."""
    try:
        for kind in POLICIES:
            for path in checkpoint.latest(folder / kind):
                stored = {file.stem for file in path.glob("*.safetensors")}
                parts = {*checkpoint.manifest(path)["parts"]}
                if not stored <= parts:
                    raise checkpoint.Damaged(f"{path} has parts that its manifest does not name")
                checkpoint.verified(path, parts - stored)
    except checkpoint.Damaged as error:
        text = str(error).replace(f"{folder}{os.sep}", "")
        raise ThespisError(f"{name} on the hub: {text}; ask its owner to push it again") from error


def bound(path: str) -> int | None:
    """Returns the most bytes of a file on the hub: None for weights, 0 for files of no run."""
    for pattern, most in KNOWN.items():
        if re.fullmatch(pattern, path, re.ASCII):
            return most
    return 0


def checked(name: Any) -> str:
    """Returns a valid name of a model, OWNER/NAME, which is also used as a path."""
    text = convert("name", str, name)
    if (
        not NAME.fullmatch(text)
        or ".." in text
        or "--" in text
        or text.endswith((".", "-", ".git"))
    ):
        raise ThespisError(f"{shown(text)} is not a name on the hub: give OWNER/NAME")
    return text


def imported(command: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise ThespisError(
            f"{command} needs a missing library: pip install 'thespis[hub]'"
        ) from None
    return huggingface_hub


@contextmanager
def asking(library: Any, what: str) -> Iterator[None]:
    """Turns errors of the hub or the network into one line, and silences the library."""
    errors, bars, logging = library.errors, library.utils, library.utils.logging
    quiet, level = bars.are_progress_bars_disabled(), logging.get_verbosity()
    bars.disable_progress_bars()
    logging.set_verbosity_error()  # errors are reported below
    try:
        yield
    except ThespisError:
        raise
    except errors.GatedRepoError as error:
        raise ThespisError(f"{what}: it is gated: ask its owner for access on its page") from error
    except errors.RepositoryNotFoundError as error:
        raise ThespisError(
            f"{what}: there is no such model on the hub, or it is private: check the name, and the "
            f"token ({TOKEN})"
        ) from error
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        advice = f"check the token ({TOKEN})" if code in (401, 403) else "try later"
        raise ThespisError(f"{what}: the hub answers {code}, {reason(error)}; {advice}") from error
    except Exception as error:  # of network libraries, which differ between versions
        text, where = reason(error.__cause__ or error), library.constants.ENDPOINT
        raise ThespisError(f"{what}: it failed at {where} ({text}); check the network") from error
    finally:
        logging.set_verbosity(level)
        if not quiet:
            bars.enable_progress_bars()


def reason(error: BaseException) -> str:
    text = getattr(error, "server_message", None) or str(error) or type(error).__name__
    return shown(text)
