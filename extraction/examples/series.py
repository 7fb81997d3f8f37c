"""Examples of time series and of trajectories, from the sizes in a config."""

import torch

from extraction.examples.tensors import BATCH, Config, Example, Maker, find, tensor

STEPS = 20
"""Steps of an example trajectory."""


def _past(config: Config) -> int:
    """Steps that a model of series reads: its context, and before that what its lags reach back to."""
    return (find(config, "context_length", "prediction_length") or STEPS) + max(find(config, "lags_sequence") or [0])


def _values(length: int, config: Config) -> list[Example]:
    channels = find(config, "num_input_channels") or config.get("input_size") or 1
    if channels == 1 and "num_input_channels" not in config:
        return [tensor((BATCH, length), ("batch", None))]
    return [tensor((BATCH, length, channels), ("batch", None, None))]


def _past_values(config: Config, model: torch.nn.Module) -> list[Example]:
    return _values(_past(config), config)


def _future_values(config: Config, model: torch.nn.Module) -> list[Example]:
    length = config.get("prediction_length")
    return _values(length, config) if length and "lags_sequence" in config else []


def _time_features(length: int | None, config: Config) -> list[Example]:
    """`num_time_features`, and the age of the series, which is one of the features that such models add."""
    return [tensor((BATCH, length, config.get("num_time_features") or 0), ("batch", None, None))] if length else []


def _categories(config: Config, model: torch.nn.Module) -> list[Example]:
    number = config.get("num_static_categorical_features")
    return [tensor((BATCH, number), ("batch", None), torch.int64)] if number else []


def _reals(config: Config, model: torch.nn.Module) -> list[Example]:
    number = config.get("num_static_real_features")
    return [tensor((BATCH, number), ("batch", None))] if number else []


def _padding(config: Config, model: torch.nn.Module) -> list[Example]:
    return [tensor((BATCH, _past(config)), ("batch", None), torch.int64)]


def _frequency(config: Config, model: torch.nn.Module) -> list[Example]:
    return [tensor((BATCH, 1), ("batch", None), torch.int64)]


def _steps(*sizes: str, width: int | None = None, dtype: torch.dtype = torch.float32) -> Maker:
    """(batch, steps, width of the field), or (batch, steps) without a field."""

    def make(config: Config, model: torch.nn.Module) -> list[Example]:
        size = width or find(config, *sizes)
        if size:
            return [tensor((BATCH, STEPS, size), ("batch", "steps", None), dtype)]
        return [] if sizes else [tensor((BATCH, STEPS), ("batch", "steps"), dtype)]

    return make


SERIES: dict[str, Maker] = {
    "past_values": _past_values,
    "past_observed_mask": _past_values,
    "past_values_padding": _padding,
    "past_time_features": lambda config, model: _time_features(_past(config), config),
    "future_values": _future_values,
    "future_time_features": lambda config, model: _time_features(config.get("prediction_length"), config),
    "static_categorical_features": _categories,
    "static_real_features": _reals,
    "freq": _frequency,
    "states": _steps("state_dim"),
    "actions": _steps("act_dim"),
    "rewards": _steps(width=1),
    "returns_to_go": _steps(width=1),
    "timesteps": _steps(dtype=torch.int64),
}
"""Parameter name → the layouts of its example."""
