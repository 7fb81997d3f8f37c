"""Honest passes as language models write them, one habit or two in each: `CORPUS`, name → (sample, sources)."""

from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus import (
    choices_and_blocks,
    forms_of_code,
    functions_as_values,
    guards_and_notes,
    items_of_arguments,
    kept_and_shared,
    members_and_settings,
    norms_and_activations,
    products_and_sums,
    returned_functions,
    routed_arguments,
    sizes_of_launches,
    spelled_otherwise,
    types_and_names,
    ways_to_organise,
)
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.policy.corpus.honest_habits import HABITS
from tests.passbench.policy.corpus.many_authors import BY_MANY
from tests.passbench.policy.corpus.usual_helpers import BY_HELPERS

CORPUS = Passes()
_MODULES = (
    sizes_of_launches,
    ways_to_organise,
    guards_and_notes,
    items_of_arguments,
    members_and_settings,
    norms_and_activations,
    products_and_sums,
    types_and_names,
    returned_functions,
    routed_arguments,
    spelled_otherwise,
    forms_of_code,
    functions_as_values,
    kept_and_shared,
    choices_and_blocks,
)
for _one in _MODULES:
    CORPUS.update(_one.PASSES)
for _name, _text in {**HABITS, **BY_MANY, **BY_HELPERS}.items():
    CORPUS.add(_name, on.add_relu, _text)
