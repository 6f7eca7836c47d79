"""Model files of verifiers: a folder, or a commit on a model hub, checked against a given hash.

Published models have a short name: they are fetched once, pinned, and then used by that name.

Spec: CRP-SPEC-005 §21.1 (decision D19)
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from crp_integrations import seals
from crp_integrations.errors import ConfigError, EngineError, MissingExtra

if TYPE_CHECKING:
    from crp_integrations.dpe.ports import Verifier


EXTRA: Final = "verifiers"
# Suffixes of files that affect outputs; pictures, cards and other runtimes' weights do not.
_DECISIVE: Final = frozenset(
    {".json", ".safetensors", ".bin", ".model", ".spm", ".txt", ".jinja", ".ckpt", ".pt", ".py"}
)
_NOT_READ: Final = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt"})
DECISIVE_FILES: Final = tuple(f"*{suffix}" for suffix in sorted(_DECISIVE))
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PinnedFiles:
    """Files whose hash was checked.

    Attributes:
        folder: folder of the files.
        name: the folder's name, or the hub's id.
        revision: the hub's commit; `local` for a folder without one.
        sha256: hash over names and contents of the files, with the prefix `sha256:`.
    """

    folder: Path
    name: str
    revision: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}+{self.sha256}"


def model_hash(folder: str | Path) -> str:
    """The hash by which a folder is pinned: over names and SHA-256 of files that affect outputs.

    These are configuration, vocabulary, weights and code in the folder, and code in subfolders.
    """
    root = Path(folder)
    try:
        places = [place for place in root.iterdir() if place.is_file()]
        places += [p for p in root.glob("*/**/*.py") if p.is_file() and p not in places]
        decisive = {
            place.relative_to(root).as_posix(): _sha256(place)
            for place in places
            if place.suffix in _DECISIVE
            and place.name not in _NOT_READ
            and not any(part.startswith(".") for part in place.relative_to(root).parts)
        }
    except OSError as error:
        raise EngineError(f"the model folder {root.name} cannot be read") from error
    if not decisive:
        raise EngineError(f"the model folder {root.name} contains no file of a model")
    return seals.digest(decisive)


def pinned_files(model: str | Path, sha256: str, revision: str = "") -> PinnedFiles:
    """The files of a model, checked against their hash.

    A folder is read in place. For a hub's id the commit is searched in the hub's local cache and
    downloaded only if it is not there. Only this function and `fetch` download a model.

    Spec: CRP-SPEC-005 §21.1 (decision D19)
    """
    if sha256 and not _SHA256.fullmatch(sha256):
        raise ConfigError(
            f"sha256 is {sha256!r:.80}, wanted `sha256:` and 64 hexadecimal digits as model_hash "
            "gives them"
        )
    folder = Path(model)
    if folder.is_dir():
        return _compared(folder, folder.resolve().name, revision or "local", sha256)
    name = str(model)
    if not _HUB_ID.fullmatch(name):
        raise ConfigError(f"there is no model folder {name!r:.200}")
    if not _COMMIT.fullmatch(revision):
        raise ConfigError(
            f"model {name!r} has revision {revision!r:.60}, wanted a commit of 40 hexadecimal "
            "digits, or a folder that exists"
        )
    if not sha256:
        raise ConfigError(
            f"model {name!r} has no sha256; fetch the commit yourself, inspect it and give "
            "model_hash(folder)"
        )
    return _from_hub(name, revision, sha256)


def library(name: str, needed_for: str, extra: str = EXTRA) -> ModuleType:
    """Import a library; raise `MissingExtra` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise MissingExtra(extra, needed_for) from error


def installed(name: str) -> str:
    """The version of an installed distribution, empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def failed(what: str, name: str) -> EngineError:
    """An error for a library's failure, with its name and version; the caller adds the cause."""
    known = installed(name)
    return EngineError(f"{name} {known}: {what}", engine=name, version=known)


def _compared(folder: Path, name: str, revision: str, sha256: str) -> PinnedFiles:
    digest = model_hash(folder)
    if not sha256:
        raise ConfigError(f"model {name!r} has no sha256; its files have {digest}")
    if digest != sha256:
        raise EngineError(f"the files of model {name!r} have {digest}, wanted {sha256}")
    return PinnedFiles(folder, name, revision, digest)


def _from_hub(name: str, revision: str, sha256: str) -> PinnedFiles:
    hub = library("huggingface_hub", f"fetching {name}")
    known = None
    try:
        known = hub.snapshot_download(
            name, revision=revision, allow_patterns=list(DECISIVE_FILES), local_files_only=True
        )
        return _compared(Path(known), name, revision, sha256)
    except (OSError, EngineError, ValueError):
        # Not in the cache, or only in part; fetched files are checked as well.
        pass
    try:
        folder = hub.snapshot_download(name, revision=revision, allow_patterns=list(DECISIVE_FILES))
    except Exception as error:  # the hub's and the connection's classes share no base
        raise failed(f"model {name!r} cannot be fetched", "huggingface_hub") from error
    return _compared(Path(folder), name, revision, sha256)


def _sha256(place: Path) -> str:
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FOLDER: Final = "CRP_MODELS"
MIRROR: Final = "CRP_MODELS_MIRROR"
RECORD: Final = "crp-model.json"


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model published by others, with figures by its authors that were not checked here.

    Attributes:
        repository: repository on the Hugging Face hub.
        megabytes: approximate size of its weights.
        accuracy: accuracy as its authors state it.
    """

    repository: str
    licence: str
    megabytes: int
    accuracy: str


PUBLISHED: Final = {
    "lettucedetect": PublishedModel(
        "KRLabsOrg/lettucedect-base-modernbert-en-v1", "MIT", 600, "F1 76.1 on RAGTruth"
    ),
    "nli": PublishedModel(
        "cross-encoder/nli-deberta-v3-base", "Apache-2.0", 740, "90.0 % on MNLI mismatched"
    ),
    "minicheck": PublishedModel(
        "lytang/MiniCheck-RoBERTa-Large", "MIT", 1_420, "72.7 % balanced accuracy on LLM-AggreFact"
    ),
}


def models_folder() -> Path:
    """The folder of fetched models: `CRP_MODELS`, else `~/.cache/crp/models`."""
    chosen = os.environ.get(FOLDER)
    return Path(chosen) if chosen else Path.home() / ".cache" / "crp" / "models"


def fetch(name: str, revision: str, sha256: str = "", *, unpinned: bool = False) -> dict[str, Any]:
    """Fetch a published model; an interrupted download is resumed.

    Args:
        revision: the hub's commit, or with `unpinned` a branch or tag.
        sha256: the files' `model_hash`; may be empty only with `unpinned`.
        unpinned: accept any files without a check; every report says so.
    """
    model = _known(name)
    if not sha256 and not unpinned:
        raise ConfigError(
            f"model {name!r} has no sha256; give sha256, or unpinned=True to use files without "
            "a check"
        )
    hub = library("huggingface_hub", f"fetching {name}")
    folder = models_folder() / name
    try:
        hub.snapshot_download(
            model.repository,
            revision=revision or None,
            local_dir=folder,
            allow_patterns=list(DECISIVE_FILES),
            endpoint=os.environ.get(MIRROR) or None,
        )
    except Exception as error:  # the hub's and the connection's classes share no base
        raise failed(f"model {name!r} cannot be fetched", "huggingface_hub") from error
    (folder / RECORD).unlink(missing_ok=True)
    digest = model_hash(folder)
    if sha256 and digest != sha256:
        raise EngineError(f"the files of model {name!r} have {digest}, wanted {sha256}")
    record = {
        "name": name,
        "repository": model.repository,
        "revision": revision,
        "sha256": digest,
        "pinned": bool(sha256),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def published_verifier(name: str) -> Verifier:
    """The verifier for a model that was fetched, by its short name."""
    _known(name)
    folder = models_folder() / name
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model {name!r} is not in {models_folder()}; fetch it with fetch({name!r}, …) of "
            "crp_integrations.engines.verifiers.model_catalogue"
        ) from error
    revision = str(record["revision"]) if record["pinned"] else "not pinned"
    sha256 = str(record["sha256"])
    if name == "lettucedetect":
        from crp_integrations.engines.verifiers.lettuce import LettuceVerifier

        return LettuceVerifier(folder, sha256=sha256, revision=revision)
    from crp_integrations.engines.verifiers.pair_verifiers import NetworkVerifier

    return NetworkVerifier(name, folder, sha256=sha256, revision=revision)


def _known(name: str) -> PublishedModel:
    if name not in PUBLISHED:
        raise ConfigError(f"model {name!r:.40} is not known, wanted one of {', '.join(PUBLISHED)}")
    return PUBLISHED[name]
