"""What this project's own stores promise beyond the suite that ships."""

import pytest

# A failed assertion of a law shows its values, as one in a test file does.
pytest.register_assert_rewrite(
    *(
        f"tests.conformance.{module}"
        for module in (
            "edits equality erasure facts journal laws processes search sessions transactions "
            "workloads"
        ).split()
    )
)
