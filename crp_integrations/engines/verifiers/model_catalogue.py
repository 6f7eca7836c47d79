"""Published verifiers by a short name: fetched once by command, pinned, then used by that name.

Spec: CRP-SPEC-005 §21.1 (decision D19)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from crp_integrations.engines.verifiers.model_files import (
    DECISIVE_FILES,
    failed,
    library,
    model_hash,
)
from crp_integrations.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from crp_integrations.dpe.ports import Verifier

FOLDER: Final = "CRP_MODELS"
MIRROR: Final = "CRP_MODELS_MIRROR"
RECORD: Final = "crp-model.json"


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model that others have published, and what they say of it; none of it was run here.

    Attributes:
        repository: on the Hugging Face hub.
        megabytes: of its weights, about.
        accuracy: as its authors give it.
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
    """Where fetched models lie: `CRP_MODELS`, else `~/.cache/crp/models`."""
    chosen = os.environ.get(FOLDER)
    return Path(chosen) if chosen else Path.home() / ".cache" / "crp" / "models"


def fetch(name: str, revision: str, sha256: str = "", *, unpinned: bool = False) -> dict[str, Any]:
    """Fetch a published model; an interrupted download goes on where it stopped.

    Args:
        revision: the hub's commit, or with `unpinned` a branch or tag.
        sha256: what `model_hash` says of the files; empty only with `unpinned`.
        unpinned: take the files that come, whatever they are; every report says so.

    Returns:
        The record that lies beside the files.

    Raises:
        ConfigError: the name is not known, or there is neither a hash nor `unpinned`.
        EngineError: the hub cannot be reached, or the files have another hash.
        MissingExtra: huggingface_hub is not installed.
    """
    model = _known(name)
    if not sha256 and not unpinned:
        raise ConfigError(
            f"model {name!r} has no sha256; give sha256, or unpinned=True to use files that "
            "nobody compared"
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
    """The verifier of a model that was fetched by its short name.

    Raises:
        ConfigError: the name is not known, or the model was not fetched.
    """
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
