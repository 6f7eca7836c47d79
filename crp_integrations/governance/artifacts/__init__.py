"""Bulky texts out of the prompt: kept in an object store, shown as handles, read by signed address.

In: texts with the ids of what they come from. Out: handles, the texts for whom the guard lets read
them, and addresses that open one artifact once, for a short time. Read `records.py`, `ports.py`,
`sandbox.py` (who may), `places.py` (where they lie), `addresses.py` (what is signed). Nothing here
touches a disk or a network; a store of objects comes in through the port.
"""

from crp_integrations.governance.artifacts.records import Artifact, Content
from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.artifacts.settings import ArtifactSettings

__all__ = ["Artifact", "ArtifactSettings", "Content", "Sandbox"]
