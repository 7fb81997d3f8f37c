"""The version of the code of each stage: work that a stage has finished counts as done while its version stays.

A version is raised by hand when what its stage makes of the same input changes; new wording changes nothing.
tests/test_code_versions.py notices when the modules that decide a stage's result have changed, and says what to do.
"""

CODE_VERSIONS = {
    "trace": 3,  # traces of models: extraction.tracing
    "cut": 1,  # subgraphs of traces: extraction.cutting, and their identity
    "vary": 1,  # variants of subgraphs, forward and backward: extraction.varying and extraction.cutting.backward
    "evaluate": 133,  # results of passes: PassBench, and the authors that come with PassNet
    "unique": 2,  # which duplicates are kept, samples and splits: dedup
}
