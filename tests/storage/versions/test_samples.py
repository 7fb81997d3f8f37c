"""Samples of a version that may come from anybody: ids and hashes become names of files."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dedup.hashes import identify
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Sample, Variant
from storage.schema import CONFIGS
from storage.versions.samples import load_samples
from storage.versions.store import Store
from tests.support.stores import NOTHING, publish_samples

VARIANT = identify(
    Variant(
        "sole_op",
        Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),)),
        (Input("in_0", "input", "float32", (2,), (1,)),),
        (),
    )
)
SAMPLE = Sample("sole_op-0123", VARIANT.family_hash, "sole_op", "eval", (VARIANT,))


def test_samples_are_as_they_were_published(tmp_path: Path) -> None:
    (found,) = load_samples(publish_samples([SAMPLE], tmp_path))
    assert found == SAMPLE


@pytest.mark.parametrize("name", ["../../home", "/etc", "a/b", ".hidden", "", "a\nb", "x" * 300])
def test_an_id_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    version = publish_samples([replace(SAMPLE, sample=name)], tmp_path)
    with pytest.raises(PassNetError, match="is no sample that PassNet has written"):
        load_samples(version)


def test_a_hash_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    variant = VARIANT.with_changes(variant_hash="../../../../../x")
    version = publish_samples([replace(SAMPLE, variants=(variant,))], tmp_path)
    with pytest.raises(PassNetError, match="variants without hashes"):
        load_samples(version)


@pytest.mark.parametrize(
    "damage, of_variant",
    [
        *(
            ({name: value}, {})
            for name, value in (
                ("sample", None), ("family_hash", None), ("variants", None), ("variants", []), ("variants", [None]),
            )
        ),
        *(({}, {name: None}) for name in ("graph", "inputs", "outputs", "sources")),
        ({}, {"inputs": [None]}),
    ],
)  # fmt: skip
def test_a_null_is_no_traceback(tmp_path: Path, damage: dict, of_variant: dict) -> None:
    rows = {
        ("sole_op", "eval"): [{**VARIANT.to_row(), **of_variant}],
        ("samples", "eval"): [{**SAMPLE.to_row(), **damage}],
    }
    tables = {key: pa.Table.from_pylist(found, CONFIGS[key[0]]) for key, found in rows.items()}
    version = Store(tmp_path).publish(tables, kind="build", parent=None, **NOTHING)[0]
    with pytest.raises(PassNetError):
        load_samples(version)
