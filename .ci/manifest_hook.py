"""Writes the manifest of the engine's code into a wheel: a build hook of hatchling.

A working tree gets none, and neither does an editable install; see `weights/manifest.py`.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManifestHook(BuildHookInterface[Any]):
    """Adds `manifest.json` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hash the files that go into the wheel."""
        if self.target_name != "wheel" or version == "editable":
            return
        package = Path(self.root) / "crp_integrations"
        # Loaded alone: the package's dependencies are not there when it is built.
        place = package / "weights" / "manifest.py"
        spec = importlib.util.spec_from_file_location("manifest", place)
        assert spec is not None
        assert spec.loader is not None
        manifest = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(manifest)
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / manifest.NAME
        path.write_text(manifest.written(package), encoding="utf-8")
        build_data["force_include"][str(path)] = f"crp_integrations/{manifest.NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written beside the tree."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()
