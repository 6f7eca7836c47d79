"""Scripts of `examples/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.requirements.rows import ROOT


def load_example(name: str) -> ModuleType:
    """The script as a module, once; it is not run as a program."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
