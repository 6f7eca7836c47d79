"""Large texts outside the prompt: kept in an object store, shown as handles, read by address.

In: texts with the ids of their sources. Out: handles, the texts for a subject whom the guard lets
read them, and addresses that open one artifact once, for a short time. Read `records.py`,
`sandbox.py` (access by one subject), `storage.py` (objects and signed addresses). Nothing here
touches a disk or a network; an object store comes in through a port.
"""

from crp_integrations.governance.artifacts.sandbox import Sandbox
from crp_integrations.governance.artifacts.storage import Artifact, ArtifactContent
from crp_integrations.governance.settings import ArtifactSettings

__all__ = ["Artifact", "ArtifactContent", "ArtifactSettings", "Sandbox"]
