"""What the commands about whole models print."""

from flows.models.texts import library_text


def test_a_library_says_of_each_pass_what_it_replaces_and_whether_it_may_serve():
    entries = [
        {
            "hash": "a" * 64,
            "ops": ["torch.ops.aten.sum.dim_IntList", "operator.add"],
            "speedup_e2e": 1.5,
            "why_not": "",
        },
        {
            "hash": "b" * 64,
            "ops": ["torch.relu"] * 30,
            "speedup_e2e": None,
            "why_not": "it writes in place",
        },
    ]
    first, second = library_text({"library": "place", "entries": entries}).splitlines()[1:]
    assert first.split() == ["a" * 12, "1.50", "x", "sum", "add", "may", "serve", "here"]
    assert second.split()[1:3] == ["relu", "relu"] and " … " in second
    assert second.endswith("may not serve here: it writes in place")
