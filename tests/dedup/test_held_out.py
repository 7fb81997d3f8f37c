"""The script that makes a version of families that another catalogue has not."""

import pytest

from benchmarks.dedup.held_out import held_out
from storage.errors import PassNetError
from storage.versions.store import Store


def test_families_of_the_first_catalogue_alone_are_for_evaluation(data_dir, tmp_path, build_pool):
    new, known, untraced = (tmp_path / name for name in ("new.txt", "known.txt", "untraced.txt"))
    new.write_text("timm:resnet10t\ntimm:resnet18\n")
    known.write_text("transformers:bert\n")
    untraced.write_text("timm:resnet18\n")
    version = held_out(str(new), str(known), data_dir, 2, build_pool)
    rows = version.table("fusible", "eval").to_pylist()
    drawn = {row["family_hash"] for row in rows if row["direction"] == "forward"}
    assert len(drawn) == 2 and not version.table("samples", "train").num_rows
    assert {source["model"] for row in rows for source in row["sources"]} == {"timm:resnet10t"}
    of_bert = {
        row["family_hash"]
        for split in ("train", "eval")
        for row in Store(data_dir).open("v1").table("fusible", split).to_pylist()
        if any(source["model"] == "transformers:bert" for source in row["sources"])
    }
    assert of_bert and not of_bert & drawn
    with pytest.raises(PassNetError, match="is one of"):
        held_out(str(new), str(new), data_dir, 2, build_pool)
    with pytest.raises(PassNetError, match=r"no model of .*untraced.txt is traced"):
        held_out(str(untraced), str(known), data_dir, 2, build_pool)
