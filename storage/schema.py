"""Arrow schemas of the dataset's tables; each table is one Hub config (subgraphs are three: one a category).

These schemas are the contract between the rooms and with everyone who loads the dataset. A column is added here first,
with what it means; `python -m storage.columns` then writes docs/columns.md anew.
"""

import pyarrow as pa

CATEGORIES = ("sole_op", "fusible", "typical")
"""Subgraph categories, each a Hub config with the `SUBGRAPHS` schema."""

SPLITS = ("train", "eval")

Column = tuple[str, pa.DataType, str]
"""A name, a type, and what a value means; for a null, what that means."""

_TEXT, _INT, _LONG, _FLOAT, _TRUTH = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()


def _struct(columns: list[Column]) -> pa.StructType:
    return pa.struct([(name, type_) for name, type_, _ in columns])


STRUCTS: dict[str, list[Column]] = {
    "input": [
        ("name", _TEXT, "name in `code`: `in_0`, `in_1`, …"),
        ("role", _TEXT, "`input`, `parameter` or `buffer` of the model"),
        ("dtype", _TEXT, "torch's name without `torch.`, such as `float32`; `int` for a Python integer"),
        ("shape", pa.list_(_LONG), "sizes in elements; empty for a Python integer"),
        ("stride", pa.list_(_LONG), "strides in elements"),
        (
            "symbolic_shape",
            pa.list_(_TEXT),
            "an expression for each dimension, such as `batch*4`; null where the model was traced with fixed sizes",
        ),
        ("low", _FLOAT, "smallest value that is drawn; null: drawn from a normal distribution of `mean` and `std`"),
        ("high", _FLOAT, "largest value that is drawn; null as `low`"),
        ("mean", _FLOAT, "mean of the values, where it is known"),
        ("std", _FLOAT, "standard deviation of the values, where it is known"),
        ("symbolic_stride", pa.list_(_TEXT), "an expression for each stride; null as `symbolic_shape`"),
    ],
    "output": [
        ("dtype", _TEXT, "torch's name without `torch.`"),
        ("shape", pa.list_(_LONG), "sizes in elements"),
        ("stride", pa.list_(_LONG), "strides in elements"),
    ],
    "source": [
        ("model", _TEXT, "catalogue entry, such as `timm:resnet18`; `…#2` for the model's third graph"),
        ("start", _INT, "number of the subgraph's first op in that graph"),
        ("end", _INT, "number behind its last op"),
    ],
    "timing": [
        ("clock", _TEXT, "`e2e` or `device`, see docs/scores.md"),
        (
            "eager_us",
            _FLOAT,
            "what a call of eager takes undisturbed, in microseconds; how it is estimated: docs/design.md, Time",
        ),
        ("candidate_us", _FLOAT, "the candidate's, in microseconds"),
        ("eager_iqr_us", _FLOAT, "interquartile range of eager's times, in microseconds"),
        ("candidate_iqr_us", _FLOAT, "the candidate's, in microseconds"),
        ("calls", _INT, "timed calls of each side"),
        ("repeats", _INT, "how often more calls were timed because the times were noisy"),
        ("noisy", _TRUTH, "IQR/median stayed above 0.2 on either side after the repeats"),
        ("speedup_low", _FLOAT, "lower end of the speedup's 95% interval"),
        ("speedup_high", _FLOAT, "upper end"),
    ],
    "regime": [
        (
            "regime",
            _TEXT,
            "`eager`, `compile`, `reduce-overhead` or `max-autotune` (modes of torch.compile), or `ours`; one of the"
            " ways that `ours` chose from, such as `ours:merged-graph`; or the best of them without a part, such as"
            " `without:passes`",
        ),
        (
            "us",
            _FLOAT,
            "median microseconds of a call, host and synchronisation included; null: it did not run",
        ),
        ("queued_us", _FLOAT, "time of a call among 20 that are not waited for; null: not measured"),
        ("error", _FLOAT, "its relative error against double precision; null: not compared"),
        ("seconds", _FLOAT, "time until it was ready: compiling, checking and capturing; null for `without:`"),
        ("reason", _TEXT, "why it has no time, or is not right; empty otherwise"),
    ],
    "finding": [
        ("rule", _TEXT, "name of the static policy's rule"),
        ("file", _TEXT, "file of the pass"),
        ("line", _INT, "line in it, from 1"),
        ("message", _TEXT, "what is refused, and what to write instead"),
    ],
    "file": [
        ("path", _TEXT, "path in the pass directory"),
        ("content", _TEXT, "its text"),
    ],
}
"""Structs that columns hold, by the name that docs/columns.md gives them."""

INPUT = _struct(STRUCTS["input"])
OUTPUT = _struct(STRUCTS["output"])
SOURCE = _struct(STRUCTS["source"])
TIMING = _struct(STRUCTS["timing"])
REGIME = _struct(STRUCTS["regime"])
FINDING = _struct(STRUCTS["finding"])
FILE = _struct(STRUCTS["file"])
_MAP_OF_TEXT, _MAP_OF_SIZES, _MAP_OF_NUMBERS = (pa.map_(_TEXT, kind) for kind in (_TEXT, _LONG, _FLOAT))

TABLES: dict[str, list[Column]] = {
    "models": [
        ("model", _TEXT, "catalogue entry, such as `timm:resnet18`"),
        ("source", _TEXT, "`timm`, `transformers`, `hub` or `dir`"),
        ("revision", _TEXT, "revision of a Hub entry; empty for others"),
        ("config_hash", _TEXT, "SHA-256 of the normalised config; entries with one hash share one trace"),
        ("spec", _TEXT, "JSON: what the model is built from"),
        ("status", _TEXT, "`traced` or `failed`"),
        ("error_category", _TEXT, "why it failed, one of `extraction.failures.CATEGORIES`; empty if traced"),
        ("message", _TEXT, "the failure in one line; or whose trace this entry shares"),
        ("seconds", _FLOAT, "time that the trace took; 0 for a shared one"),
        ("graphs", _INT, "graphs that dynamo captured"),
        ("graph_breaks", pa.list_(_TEXT), "why there is more than one graph"),
        ("ops", _INT, "ops in all graphs"),
        ("libraries", _MAP_OF_TEXT, "versions of the libraries that the graphs depend on"),
        ("symbols", _MAP_OF_SIZES, "sizes that may change, by name, with their values in this trace"),
        ("static_reason", _TEXT, "why no size may change; empty where one may"),
    ],
    "subgraphs": [
        ("variant_hash", _TEXT, "identity of graph and input dtypes, shapes and strides (SHA-256, hex)"),
        ("graph_hash", _TEXT, "identity of ops, wiring and constants; names, input order and model do not count"),
        ("family_hash", _TEXT, "identity of ops and wiring; constants, dtypes and shapes do not count"),
        ("category", _TEXT, "`sole_op`, `fusible` or `typical`"),
        ("op_sequence", pa.list_(_TEXT), "names of the ops in order; methods with a leading dot"),
        ("graph", _TEXT, "JSON of the graph, see `storage.graph.as_json`"),
        ("code", _TEXT, "the same as Python source, for people and prompts; never executed"),
        ("inputs", pa.list_(INPUT), "what the graph takes, in order"),
        ("outputs", pa.list_(OUTPUT), "what it returns, in order"),
        ("sources", pa.list_(SOURCE), "places in models where it stands"),
        ("kernels", _INT, "kernels that TorchInductor's schedule gives it; null where that was not determined"),
        ("occurrences", _LONG, "places in the corpus that merged into this row"),
        ("direction", _TEXT, "`forward`, or `backward` for a graph of gradients"),
        ("symbols", _MAP_OF_SIZES, "sizes that its shapes follow, by name, with their values here"),
    ],
    "samples": [
        ("sample", _TEXT, "id: category, a dash, and 12 digits of the family hash"),
        ("family_hash", _TEXT, "the family whose variants the sample holds"),
        ("category", _TEXT, "`sole_op`, `fusible` or `typical`"),
        ("split", _TEXT, "`train` or `eval`"),
        ("variants", pa.list_(_TEXT), "hashes of its variants, rows of the category's config"),
        ("op_sequence", pa.list_(_TEXT), "names of the ops of its first variant"),
        ("rarity", _FLOAT, "mean over the family's op transitions of −log2 of their frequency in the corpus"),
        ("reason", _TEXT, "why it is in its split"),
    ],
    "results": [
        ("run", _TEXT, "id of the run"),
        ("sample", _TEXT, "id of the sample"),
        ("category", _TEXT, "category of the sample"),
        ("variant_hash", _TEXT, "the variant that was measured"),
        ("author", _TEXT, "who wrote the pass, such as `distill` or `inductor`"),
        ("model", _TEXT, "id of the language model; empty for other authors"),
        ("attempt", _INT, "number of the attempt at the sample, from 1; 0 where there is one alone"),
        ("compiler", _TEXT, "what ran: `pass`, `eager`, `inductor`, … (`eager` where an author declined)"),
        ("status", _TEXT, "`ok`, `wrong`, `runtime_error`, `compile_error`, `no_match`, `rejected` or `timeout`"),
        ("error_code", _INT, "1 accuracy, 2 runtime, 3 compilation; null: no error, or one that no level tolerates"),
        ("reason", _TEXT, "what went wrong and what to do; for `ok`, which element is not right at t = −5"),
        (
            "t_min",
            _INT,
            "smallest level in −10…1 at which every output of every call agrees; null: none",
        ),
        (
            "t_min_eager",
            _INT,
            "smallest level at which eager, called twice, agrees with itself; measured where the candidate is not "
            "right at t = −5; null: not measured, or at no level, which `reason` then says",
        ),
        ("max_abs_error", _FLOAT, "largest absolute difference from eager in draws and in timed calls that set t_min"),
        ("error_eager", _FLOAT, "eager's relative error against double precision; null: it does not run in it"),
        ("error_candidate", _FLOAT, "the candidate's"),
        ("speedup_e2e", _FLOAT, "eager's time over the candidate's by the clock `e2e`; null: not measured"),
        ("speedup_device", _FLOAT, "the same by the clock `device`"),
        ("timings", pa.list_(TIMING), "the measurements behind the speedups, one for each clock"),
        ("times_meaningful", _TRUTH, "false wherever no GPU ran, as in Triton's interpreter"),
        ("findings", pa.list_(FINDING), "what the static policy refused"),
        ("layers", pa.list_(_TEXT), "layers of integrity that were on, see docs/integrity.md"),
        ("layers_missing", _MAP_OF_TEXT, "those that cannot work on this machine, with the reason"),
        (
            "surroundings",
            _MAP_OF_TEXT,
            "the host's kernel, load and speed (`host_us`: microseconds of a fixed piece of Python), the GPU's clocks,"
            " temperature and processes: a value, or before → after",
        ),
        ("matches", _INT, "matches of the pass in the variant; null where no pass was applied"),
        (
            "library_ops",
            pa.list_(pa.string()),
            "ATen operators that computed inside replacements, such as `aten.mm`; null where nobody looked",
        ),
        (
            "kernels_only",
            pa.bool_(),
            "whether no operator and no CUDA graph was seen: replacements were kernels of the pass's own",
        ),
        (
            "capture_used",
            pa.bool_(),
            "whether a replacement asked for a CUDA graph (`passbench.launch.captured`); null where nobody looked",
        ),
        ("pass_files", pa.list_(FILE), "the pass itself"),
        ("device", _TEXT, "name of the GPU, or `cpu`"),
        ("protocol", _TEXT, "`passnet`, `paper`, or `shared`, in rounds with other compilers: how calls were timed"),
        ("seconds", _FLOAT, "time that the benchmark of this variant took"),
        ("libraries", _MAP_OF_TEXT, "versions of Python, torch, triton, numpy and CUDA"),
        (
            "device_method",
            _TEXT,
            "where the times of the clock `device` come from: `graph`, replays of a CUDA graph by PassBench's own"
            " clock, or `kernels`, the busy time that a baseline's worker reports; null: there are none",
        ),
        ("device_note", _TEXT, "why `device_method` is not `graph`; empty where it is"),
        ("numerics", _TEXT, "`default` or `strict`: whether a baseline rounds as eager does; null: not a baseline"),
        ("seed", _LONG, "seed of inputs and order"),
        ("commit", _TEXT, "commit of PassNet, with `+` where files were changed; null: not a checkout"),
        ("busy", _TEXT, "what else the machine did during the measurement; empty: nothing was seen"),
        ("hardware", _MAP_OF_TEXT, "GPU, driver, compute capability, processor and number of cores"),
        (
            "phases",
            _MAP_OF_NUMBERS,
            "seconds by what PassBench did: commands to each worker, draws, comparisons; the rest of `seconds` is its"
            " own",
        ),
    ],
    "scores": [
        ("run", _TEXT, "id of the run"),
        ("author", _TEXT, "its author"),
        ("clock", _TEXT, "`e2e` or `device`"),
        ("t", _INT, "tolerance level, −10…4"),
        ("s_t", _FLOAT, "speedup score S_t"),
        ("es_t", _FLOAT, "error-aware speedup score ES_t"),
        ("alpha", _FLOAT, "α: geometric mean of correct speedups"),
        ("beta", _FLOAT, "β: geometric mean of correct speedups below 1"),
        ("lam", _FLOAT, "λ: share of variants that are correct at t"),
        ("eta", _FLOAT, "η: share of those that are slower than eager"),
        ("gamma", _FLOAT, "γ: what an error costs at t"),
        ("pi", pa.list_(_FLOAT), "π: shares of error codes 1, 2, 3 among the errors"),
        ("n", _INT, "N: number of variants"),
        ("aggregate", _FLOAT, "AS of the whole run, the same on each of its rows"),
        ("times_meaningful", _TRUTH, "false where no GPU ran: then the scores say nothing"),
        ("gpu", _TEXT, "name of the GPU, or `cpu`; several are separated by commas, here and in what follows"),
        ("torch", _TEXT, "version of torch"),
        ("triton", _TEXT, "version of triton"),
        ("numerics", _TEXT, "numerics mode of the baseline, `default` or `strict`; empty for passes and eager"),
        ("noisy_share", _FLOAT, "share of the timings by this clock that stayed noisy"),
        (
            "from_kernels",
            _FLOAT,
            "share of the times by the clock `device` whose `device_method` is `kernels`; 0 for `e2e`",
        ),
    ],
    "trajectories": [
        ("run", _TEXT, "id of the run"),
        ("sample", _TEXT, "id of the sample"),
        ("author", _TEXT, "the author, `llm`"),
        ("model", _TEXT, "id of the language model"),
        ("attempt", _INT, "number of the attempt, from 1"),
        ("messages", _TEXT, "JSON of the conversation, as pydantic-ai's `ModelMessagesTypeAdapter` writes it"),
        ("tool_calls", _INT, "tools that were called"),
        ("input_tokens", _LONG, "tokens that went to the model"),
        ("output_tokens", _LONG, "tokens that it answered"),
        ("cost_usd", _FLOAT, "dollars; null where the model's price is not known"),
        ("seconds", _FLOAT, "time that the attempt took"),
        ("scores", pa.list_(_FLOAT), "AS of each evaluation, in order"),
        ("exit_status", _TEXT, "how it ended, one of `agent.llm.state.Exit`"),
        ("task_family", _TEXT, "family hash of the sample"),
        ("task_split", _TEXT, "`train` or `eval`, as it was when the attempt began"),
        ("steps", _INT, "answers of the model; failed calls of its provider do not count"),
        ("failed_calls", _INT, "failed calls of its provider"),
        ("rejections", _INT, "evaluations that a layer of integrity refused"),
        ("error", _TEXT, "what the provider said last, if it refused or failed"),
        ("best_files", pa.list_(FILE), "the best pass that was evaluated"),
        ("draft_files", pa.list_(FILE), "the pass as it stood at the end"),
    ],
    "model_results": [
        ("run", _TEXT, "id of the run"),
        ("model", _TEXT, "catalogue entry, such as `timm:resnet18`, or `module:function`"),
        ("batch", _INT, "batch size of its inputs"),
        ("dtype", _TEXT, "dtype of its parameters and inputs, torch's name without `torch.`"),
        ("mode", _TEXT, "`inference`: evaluation mode, without gradients"),
        ("status", _TEXT, "`ok`, `wrong` (ours is not as near to double precision as eager) or `failed`"),
        ("reason", _TEXT, "what went wrong; empty for `ok`"),
        ("chosen", _TEXT, "the way that was chosen, a name of `passbench.models.recipes`; or `torch.compile`"),
        ("why_not", _TEXT, "why the model was not run as one graph; empty where it was"),
        ("regimes", pa.list_(REGIME), "times of all regimes, and of all ways that were tried"),
        ("speedup_eager", _FLOAT, "eager's `us` over ours; null: not measured"),
        ("speedup_compiled", _FLOAT, "`us` of the fastest mode of torch.compile over ours; null: not measured"),
        ("served", _MAP_OF_SIZES, "matches of each pass of the library in the graph that was chosen"),
        ("covered", _FLOAT, "share of the model's operators that passes serve"),
        (
            "covered_time",
            _FLOAT,
            "share of eager's time that these operators take, each run by itself: time of their kernels on a GPU, "
            "else of the host; null: not measured",
        ),
        ("ops", _INT, "operators of the graph; null where there are several graphs"),
        ("t_min", _INT, "smallest level in −10…1 at which ours agrees with eager; null: none"),
        ("error_eager", _FLOAT, "eager's relative error against double precision; null: it does not run in it"),
        ("error", _FLOAT, "the relative error of ours"),
        ("level_eager", _INT, "smallest level at which eager agrees with double precision; null: none"),
        ("level", _INT, "smallest level at which ours does"),
        ("strict", _TRUTH, "whether eager's bits were asked for"),
        ("device", _TEXT, "name of the GPU, or `cpu`"),
        ("times_meaningful", _TRUTH, "false wherever no GPU ran"),
        ("seconds", _FLOAT, "time that everything about the row took"),
        ("libraries", _MAP_OF_TEXT, "versions of Python, torch, triton, numpy and CUDA"),
        ("commit", _TEXT, "commit of PassNet, with `+` where files were changed; null: not a checkout"),
    ],
}
"""Columns of every table, in order."""

MODELS = pa.schema(_struct(TABLES["models"]))
SUBGRAPHS = pa.schema(_struct(TABLES["subgraphs"]))
SAMPLES = pa.schema(_struct(TABLES["samples"]))
RESULTS = pa.schema(_struct(TABLES["results"]))
SCORES = pa.schema(_struct(TABLES["scores"]))
TRAJECTORIES = pa.schema(_struct(TABLES["trajectories"]))
MODEL_RESULTS = pa.schema(_struct(TABLES["model_results"]))

CONFIGS: dict[str, pa.Schema] = {
    "models": MODELS,
    **dict.fromkeys(CATEGORIES, SUBGRAPHS),
    "samples": SAMPLES,
    "results": RESULTS,
    "scores": SCORES,
    "trajectories": TRAJECTORIES,
    "model_results": MODEL_RESULTS,
}
"""Hub config name → schema."""

ADDED = frozenset(
    """direction symbols symbolic_stride static_reason error_eager error_candidate layers_missing surroundings
    speedup_low speedup_high task_family task_split steps failed_calls rejections error best_files
    draft_files library_ops kernels_only times_meaningful device_method device_note numerics seed commit busy hardware
    capture_used gpu torch triton noisy_share from_kernels
    phases t_min_eager""".split()
)
"""Columns and fields that files of earlier versions may lack; they are null there."""
