"""Which labels a policy lets into a selection, beside what the guard lets a subject read."""

from __future__ import annotations

from collections.abc import Collection

from crp_integrations.records import Part


class LabelFilter(Part):
    """Labels that an item must have, and labels that it may not have.

    It narrows what the guard allows and never widens it.

    Spec: Summit §Storage Interfaces

    Attributes:
        require: all of these.
        without: none of these.
    """

    require: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def passes(self, labels: Collection[str]) -> bool:
        """Whether an item with these labels may be selected.

        >>> LabelFilter(without=("export:restricted",)).passes(["tenant:a", "export:restricted"])
        False
        """
        return all(label in labels for label in self.require) and not any(
            label in labels for label in self.without
        )

    def __bool__(self) -> bool:
        """Whether anything is filtered."""
        return bool(self.require or self.without)

    @property
    def told(self) -> dict[str, str]:
        """The filter as evidence tells it; empty for none."""
        said = (("require", self.require), ("without", self.without))
        return {name: " ".join(labels) for name, labels in said if labels}
