from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from crp_integrations.language.words import stem


def test_stems_do_not_depend_on_another_library_or_on_threads() -> None:
    # PyStemmer, where it is installed, makes "ad" of it.
    assert stem("added") == "add"
    listed = [f"{letter}ingly{number}ations" for letter in "abcdefgh" for number in range(400)]
    one_by_one = [stem.__wrapped__(word) for word in listed]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem.__wrapped__, listed)) == one_by_one
