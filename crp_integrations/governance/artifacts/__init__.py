"""Large texts outside the prompt: kept in an object store, shown as handles, read by address.

In: texts with the ids of their sources. Out: handles, texts for a subject that the guard lets read
them, and addresses that open one artifact once, for a short time. Read `storage.py` (records,
objects, signed addresses), then `sandbox.py` (access by one subject). Nothing here accesses a disk
or network itself; an object store is passed in through a port.
"""

from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.artifacts.storage import Artifact, ArtifactContent
from crp_integrations.governance.settings import ArtifactSettings

__all__ = ["Artifact", "ArtifactContent", "ArtifactSettings", "Sandbox"]
