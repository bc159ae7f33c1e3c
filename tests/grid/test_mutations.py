"""A seeded sample of all mutations of the config: 45 s of a quiet core; the drill tries all."""

import json
from collections import defaultdict
from random import Random

from drills.mutations import DOCUMENT, FILES, MEASURED, mutations, rendered, tried

EACH = 40  # of a kind in a file


def test_no_mutation_passes_silently_or_ends_in_a_traceback():
    strata, random = defaultdict(list), Random(0)
    for mutation in (one for file in FILES for one in mutations(file)):
        strata[mutation.file, mutation.kind].append(mutation)
    chosen = [one for own in strata.values() for one in random.sample(own, min(EACH, len(own)))]
    found, lost = tried(chosen)
    assert not lost, "\n".join(lost)
    assert len(chosen) >= 2000
    assert len(found) == len(FILES)


def test_no_number_of_the_tables_was_typed_in():
    text, about = DOCUMENT.read_text(), json.loads(MEASURED.read_text())
    assert text == rendered(text)
    assert about["lost"] == []
    ended = [ended for own in about["found"].values() for ended in own.values()]
    assert sum(sum(counts.values()) for counts in ended) == about["tried"]
