from __future__ import annotations

from tests.commands import Here as Here
from tests.commands import here as here
