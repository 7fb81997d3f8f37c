"""What PassBench and the static policy found, as short text that says what to do next."""

from collections.abc import Sequence

from passbench.result import Finding, VariantResult

_SHOWN_FINDINGS = 8
_SHOWN_REASONS = 3
_REASON = 900  # characters
_SHOWN_VARIANTS = 20
_LEVEL = -5

_NEXT = {
    "no_match": "The pattern must have every op as the source does: same operation, arguments and constants, in place "
    "where it is. Mend the first difference shown.",
    "rejected": "A layer of the benchmark refuses this pass; do the work in the kernel, in every call, on the inputs.",
    "wrong": "Mend the result at the element shown. Accumulate in float32; mask loads and stores.",
    "runtime_error": "Mend the error shown. Outputs must have eager's dtype, shape and layout, and be written in full.",
    "compile_error": "Mend the error shown: the list of names, the three functions of each module, or the kernel.",
    "timeout": "The pass does not end in time: look for a grid or a loop without bound.",
}


def findings_text(findings: Sequence[Finding]) -> str:
    """Findings of the static policy, one a line."""
    if not findings:
        return "No findings: the policy allows this pass. Next: evaluate()."
    lines = [f"{f.file}:{f.line}: {f.rule}: {f.message}" for f in findings[:_SHOWN_FINDINGS]]
    more = f"\n... {len(findings) - len(lines)} more" if len(findings) > len(lines) else ""
    return "The policy refuses this pass:\n" + "\n".join(lines) + more + "\nNext: mend these lines, then check() again."


def results_text(results: Sequence[VariantResult], score: float, best: float | None, best_number: int) -> str:
    """An evaluation as text: a line a variant, each reason once, the best score so far, and what to do next.

    `score`: AS of this evaluation; `best`: the best of those before it, None if it is the first.
    """
    ok = sum(r.status == "ok" for r in results)
    better = best is None or score > best
    timed = any(r.times_meaningful for r in results)  # a CPU's AS would say that a right pass is a hundred times slower
    of_best = f"AS {best:.3f} of evaluation" if timed else "evaluation"
    standing = "the best so far" if better else f"the best so far is {of_best} {best_number}"
    scored = f"AS {score:.3f}" if timed else "no score without a GPU"
    head = f"{ok} of {len(results)} variants ok, {scored} ({standing})."
    lines = [_line(number, one) for number, one in enumerate(results[:_SHOWN_VARIANTS])]
    if len(results) > len(lines):
        lines.append(f"... {len(results) - len(lines)} more")
    reasons = list(dict.fromkeys(r.reason for r in results if r.status != "ok" and r.reason))[:_SHOWN_REASONS]
    return "\n".join([head, *lines, *(reason[:_REASON] for reason in reasons), f"Next: {_advice(results)}"])


def _line(number: int, one: VariantResult) -> str:
    if one.status != "ok":
        return f"variant {number}: {one.status}"
    parts = [f"variant {number}: ok", f"t_min {one.t_min}"]
    if one.max_abs_error:
        parts.append(f"largest error {one.max_abs_error:.3g}")
    for timing in one.timings:
        noisy = " (noisy)" if timing.noisy else ""
        times = f"{timing.eager_us:.1f} -> {timing.candidate_us:.1f} us"
        parts.append(f"{timing.clock} {timing.speedup:.2f}x {times}{noisy}")
    return ", ".join(parts)


def _advice(results: Sequence[VariantResult]) -> str:
    failed = [r.status for r in results if r.status != "ok"]
    if failed:
        return _NEXT[max(set(failed), key=failed.count)]
    if any(r.t_min > _LEVEL for r in results):
        return f"some variants agree only above t = {_LEVEL}: compute in float32 and round once, at the store."
    if not results[0].times_meaningful:
        return "all correct; without a GPU the times mean nothing, so submit(), or go on if kernels can be fewer."
    slow = [r for r in results if (r.speedup("e2e") or 0) < 1]
    if slow:
        return (
            "correct, but slower than eager in places: match more ops in one pattern, launch less, do less in Python."
        )
    return "correct and faster; submit(), or try fewer launches, other block sizes, a longer pattern."
