"""The measurement of sentence ends counts what it says."""

from crp_integrations.bench.sentences import score


def test_score_counts_inner_boundaries() -> None:
    right = score([["It works.", "It lasts."], ["One."]])
    assert (right["f1"], right["boundaries"]) == (1.0, 1.0)
    wrong = score([["It works", "it lasts."]])
    assert (wrong["recall"], wrong["f1"]) == (0.0, 0.0)
