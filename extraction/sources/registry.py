"""The sources of models, in one table: how an entry is written, and what makes a spec and a model of it.

To add a source, such as torchvision's registry, write a module beside this one with the functions of `ModelSource`,
`GraphSource` or `ConfigSource` (`timm_models.py` is the shortest), and add a line to `FORMS` and to `SOURCES` below.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from extraction.sources import graph_directories, hub_configs, hub_models, timm_models, transformers_models
from storage.records import TracedGraph

Config = dict[str, Any]
"""What a model is built from: plain JSON data."""


@dataclass(frozen=True)
class Form:
    """How an entry's name is written: `form` for people, `pattern` with a group `name` and perhaps `revision`."""

    form: str
    pattern: str


@dataclass(frozen=True)
class ModelSource:
    """A source that models can be built from.

    `library`: the package whose version its graphs depend on. `names()`: all models that it has. `config(name)`: what
    the model of that name is built from, without building it. `normalise(config)`: that, reduced to what can change
    the graph. `build(config)`: the model, on the current default device. `inputs(model, config)`: example inputs, by
    parameter name. All raise `extraction.failures.ModelError`.
    """

    library: str
    names: Callable[[], list[str]]
    config: Callable[[str], Config]
    normalise: Callable[[Config], Config]
    build: Callable[[Config], torch.nn.Module]
    inputs: Callable[[torch.nn.Module, Config], Mapping[str, Any]]


@dataclass(frozen=True)
class GraphSource:
    """A source whose graphs are there already. `graphs(config, model)`: the graphs, under that model's name; the other
    fields are those of `ModelSource`."""

    library: str
    config: Callable[[str], Config]
    normalise: Callable[[Config], Config]
    graphs: Callable[[Config, str], tuple[TracedGraph, ...]]


@dataclass(frozen=True)
class ConfigSource:
    """A source of configs that the models of other sources are built from.

    `library`: the package that fetches them. `listing(query, limit)`: names of models, with `@REVISION` where that is
    known; raises PassNetError. `resolve(name, revision)`: the source that builds the model, and the config that its
    `normalise` takes. `prefetch(names)`: gets ready to resolve these names and revisions, several at a time.
    """

    library: str
    listing: Callable[[str, int | None], list[str]]
    resolve: Callable[[str, str], tuple[str, Config]]
    prefetch: Callable[[Iterable[tuple[str, str]]], None]


FORMS = {
    "timm": Form("timm:NAME", r"(?P<name>[\w.\-]+)"),
    "transformers": Form("transformers:MODEL_TYPE[/CLASS]", r"(?P<name>[\w.\-]+(/[A-Za-z]\w*)?)"),
    "hub": Form("hub:ORG/NAME[@REVISION]", r"(?P<name>[\w.\-]+(/[\w.\-]+)?)(@(?P<revision>[\w./\-]+))?"),
    "dir": Form("dir:PATH", r"(?P<name>.+)"),
}

SOURCES: dict[str, ModelSource | GraphSource | ConfigSource] = {
    module.LIBRARY: ModelSource(
        module.LIBRARY, module.names, module.config, module.normalise, module.build, module.example_inputs
    )
    for module in (timm_models, transformers_models)
}
SOURCES["dir"] = GraphSource(
    graph_directories.LIBRARY, graph_directories.config, graph_directories.normalise, graph_directories.graphs
)
SOURCES["hub"] = ConfigSource(hub_models.LIBRARY, hub_models.listing, hub_models.resolve, hub_configs.prefetch)
