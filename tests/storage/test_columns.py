"""docs/columns.md says what the schemas say."""

from storage.columns import PAGE, markdown
from storage.schema import CONFIGS, STRUCTS, TABLES


def test_the_page_is_what_the_schemas_say():
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run `python -m storage.columns`"


def test_every_column_of_every_config_has_its_line():
    lines = markdown().splitlines()
    for config, schema in CONFIGS.items():
        for name in schema.names:
            assert any(line.startswith(f"| `{name}` |") for line in lines), (config, name)


def test_every_column_says_what_it_means():
    for columns in (*TABLES.values(), *STRUCTS.values()):
        assert all(meaning.strip() and "|" not in meaning for _, _, meaning in columns)
