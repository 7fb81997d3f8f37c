"""Arrow schemas of the dataset's tables; each table is one Hub config (subgraphs are three: one a category).

These schemas are the contract between the rooms and with everyone who loads the dataset. A column is added here first.
"""

import pyarrow as pa

CATEGORIES = ("sole_op", "fusible", "typical")
"""Subgraph categories, each a Hub config with the `SUBGRAPHS` schema."""

SPLITS = ("train", "eval")

INPUT = pa.struct(
    [
        ("name", pa.string()),
        ("role", pa.string()),  # input | parameter | buffer
        ("dtype", pa.string()),  # torch's name without "torch.", or "int" for a Python integer
        ("shape", pa.list_(pa.int64())),
        ("stride", pa.list_(pa.int64())),
        ("symbolic_shape", pa.list_(pa.string())),  # an expression a dimension; null: traced with fixed sizes
        ("low", pa.float64()),  # values are drawn from [low, high]; null: from a normal with mean and std
        ("high", pa.float64()),
        ("mean", pa.float64()),
        ("std", pa.float64()),
        ("symbolic_stride", pa.list_(pa.string())),
    ]
)

OUTPUT = pa.struct(
    [
        ("dtype", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("stride", pa.list_(pa.int64())),
    ]
)

SOURCE = pa.struct([("model", pa.string()), ("start", pa.int32()), ("end", pa.int32())])

MODELS = pa.schema(
    [
        ("model", pa.string()),  # catalogue entry, e.g. "timm:resnet18"
        ("source", pa.string()),
        ("revision", pa.string()),
        ("config_hash", pa.string()),
        ("spec", pa.string()),  # JSON: what the model is built from
        ("status", pa.string()),  # traced | failed
        ("error_category", pa.string()),
        ("message", pa.string()),
        ("seconds", pa.float64()),
        ("graphs", pa.int32()),
        ("graph_breaks", pa.list_(pa.string())),
        ("ops", pa.int32()),
        ("libraries", pa.map_(pa.string(), pa.string())),
        ("symbols", pa.map_(pa.string(), pa.int64())),  # dynamic sizes, with their values in this trace
        ("static_reason", pa.string()),  # why no size is dynamic; empty where one is
    ]
)

SUBGRAPHS = pa.schema(
    [
        ("variant_hash", pa.string()),
        ("graph_hash", pa.string()),
        ("family_hash", pa.string()),
        ("category", pa.string()),
        ("op_sequence", pa.list_(pa.string())),
        ("graph", pa.string()),  # JSON, see storage.graph.record
        ("code", pa.string()),  # the same as Python source, for people and prompts
        ("inputs", pa.list_(INPUT)),
        ("outputs", pa.list_(OUTPUT)),
        ("sources", pa.list_(SOURCE)),
        ("kernels", pa.int32()),  # TorchInductor's kernel count; null where it was not determined
        ("occurrences", pa.int64()),  # places in the corpus that collapsed into this row
        ("direction", pa.string()),  # forward | backward
        ("symbols", pa.map_(pa.string(), pa.int64())),  # sizes that the shapes follow, with their values here
    ]
)

SAMPLES = pa.schema(
    [
        ("sample", pa.string()),  # "<category>-<family hash, 12 digits>"
        ("family_hash", pa.string()),
        ("category", pa.string()),
        ("split", pa.string()),
        ("variants", pa.list_(pa.string())),  # variant hashes
        ("op_sequence", pa.list_(pa.string())),
        ("rarity", pa.float64()),  # mean of -log2 of the corpus frequency of the family's op transitions
        ("reason", pa.string()),  # why it is in its split
    ]
)

TIMING = pa.struct(
    [
        ("clock", pa.string()),  # e2e | device
        ("eager_us", pa.float64()),  # medians, microseconds
        ("candidate_us", pa.float64()),
        ("eager_iqr_us", pa.float64()),
        ("candidate_iqr_us", pa.float64()),
        ("calls", pa.int32()),
        ("repeats", pa.int32()),
        ("noisy", pa.bool_()),  # IQR/median stayed above 0.2 after the repeats
        ("speedup_low", pa.float64()),  # 95% interval of the speedup
        ("speedup_high", pa.float64()),
    ]
)

FINDING = pa.struct(
    [
        ("rule", pa.string()),
        ("file", pa.string()),
        ("line", pa.int32()),
        ("message", pa.string()),
    ]
)

FILE = pa.struct([("path", pa.string()), ("content", pa.string())])

RESULTS = pa.schema(
    [
        ("run", pa.string()),
        ("sample", pa.string()),
        ("category", pa.string()),
        ("variant_hash", pa.string()),
        ("author", pa.string()),
        ("model", pa.string()),  # the LLM's id; empty for offline authors
        ("attempt", pa.int32()),
        ("compiler", pa.string()),  # pass | eager | inductor | ...
        ("status", pa.string()),  # ok | wrong | runtime_error | compile_error | no_match | rejected | timeout
        ("error_code", pa.int32()),  # 1 accuracy, 2 runtime, 3 compilation; null: none, or never tolerated
        ("reason", pa.string()),
        ("t_min", pa.int32()),  # smallest level in -10..1 at which every draw passes; null: none
        ("max_abs_error", pa.float64()),
        ("error_eager", pa.float64()),  # relative, against double precision; null: does not run in it
        ("error_candidate", pa.float64()),
        ("speedup_e2e", pa.float64()),
        ("speedup_device", pa.float64()),
        ("timings", pa.list_(TIMING)),
        ("times_meaningful", pa.bool_()),  # false on the Triton interpreter and wherever no GPU ran
        ("findings", pa.list_(FINDING)),
        ("layers", pa.list_(pa.string())),  # integrity layers that were on
        ("layers_missing", pa.map_(pa.string(), pa.string())),  # those that cannot work on this machine, and why
        ("surroundings", pa.map_(pa.string(), pa.string())),  # clocks, temperature, load: value, or "before → after"
        ("matches", pa.int32()),
        ("pass_files", pa.list_(FILE)),
        ("device", pa.string()),
        ("protocol", pa.string()),
        ("seconds", pa.float64()),
        ("libraries", pa.map_(pa.string(), pa.string())),
    ]
)

SCORES = pa.schema(
    [
        ("run", pa.string()),
        ("author", pa.string()),
        ("clock", pa.string()),  # e2e | device
        ("t", pa.int32()),
        ("s_t", pa.float64()),
        ("es_t", pa.float64()),
        ("alpha", pa.float64()),
        ("beta", pa.float64()),
        ("lam", pa.float64()),
        ("eta", pa.float64()),
        ("gamma", pa.float64()),
        ("pi", pa.list_(pa.float64())),  # shares of error codes 1, 2, 3 among the errors
        ("n", pa.int32()),
        ("aggregate", pa.float64()),  # AS of the whole run, repeated on each of its rows
    ]
)

TRAJECTORIES = pa.schema(
    [
        ("run", pa.string()),
        ("sample", pa.string()),
        ("author", pa.string()),
        ("model", pa.string()),
        ("attempt", pa.int32()),
        ("messages", pa.string()),  # JSON, pydantic-ai's ModelMessagesTypeAdapter
        ("tool_calls", pa.int32()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cost_usd", pa.float64()),  # null: the model's price is not known
        ("seconds", pa.float64()),
        ("scores", pa.list_(pa.float64())),  # AS of each evaluation, in order
        ("exit_status", pa.string()),  # see agent.llm.state.Exit
        ("task_family", pa.string()),  # family hash of the sample
        ("task_split", pa.string()),  # train | eval, as it was then
        ("steps", pa.int32()),  # answers of the model; failed calls of its provider are none
        ("failed_calls", pa.int32()),
        ("rejections", pa.int32()),  # evaluations that an integrity layer refused
        ("error", pa.string()),  # what the provider said last, if it refused or failed
        ("best_files", pa.list_(FILE)),  # the best evaluated pass
        ("draft_files", pa.list_(FILE)),  # the pass as it stood at the end
    ]
)

CONFIGS: dict[str, pa.Schema] = {
    "models": MODELS,
    **dict.fromkeys(CATEGORIES, SUBGRAPHS),
    "samples": SAMPLES,
    "results": RESULTS,
    "scores": SCORES,
    "trajectories": TRAJECTORIES,
}
"""Hub config name → schema."""

ADDED = frozenset(
    """direction symbols symbolic_stride static_reason error_eager error_candidate layers_missing surroundings
    speedup_low speedup_high task_family task_split steps failed_calls rejections error best_files
    draft_files""".split()
)
"""Columns and fields that files of earlier versions may lack; they are null there."""
