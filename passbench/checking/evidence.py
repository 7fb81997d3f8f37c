"""What ran inside the replacements of a pass, and whether it may have: the parent's side.

See docs/integrity.md, "Evidence".

The child observes (`passbench.child.observe`) and answers with bytes of a fixed size. Nothing here runs code of a pass.
An observation is a second look at what the static policy has let through; the child that makes it is not trusted, so
it can convict and cannot acquit.
"""

import functools
import re

from passbench.contract import PassFiles
from passbench.ipc.observation import MAX_NAMES, Observation, clean
from passbench.policy.modules import Report, parse

OPERATORS = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ zero_ lift_fresh
    view _unsafe_view _reshape_alias as_strided expand permute transpose t select slice squeeze unsqueeze unbind split
    split_with_sizes detach alias _conj
    clone copy_ _to_copy""".split()
)
"""ATen operators, without overload, that the host functions and tensor methods of `passbench.policy.allowlists` come
down to: allocations, fills, views and copies. `lift_fresh` is `as_tensor` of numbers, `_conj` is `.H`, `alias` is
`x[...]`; `_reshape_alias` is what `reshape` is on some backends."""

_FILL_OR_COPY = r"at::native::(FillFunctor<|(direct|converting|b?float[0-9]+)_copy_kernel_cuda)"
_TORCH_KERNELS = re.compile(
    rf"Mem(cpy|set) .*"
    rf"|void at::native::(vectorized|unrolled)_elementwise_kernel<([0-9]+, )?{_FILL_OR_COPY}.*"
    rf"|void at::native::elementwise_kernel<[0-9]+, [0-9]+, at::native::gpu_kernel_impl(_nocast)?<{_FILL_OR_COPY}.*"
)
"""What torch 2.11 to 2.15 launch for those operators. The functor comes early in these names, so that it is within
`NAME_BYTES`; without it, `elementwise_kernel` could be any operator."""

_ADVICE = "compute in @triton.jit kernels of the pass; its host code may allocate, fill, view and copy"


def judge(observation: Observation, files: PassFiles) -> str | None:
    """None if all that ran is allowed to a pass of these sources, else the reason, its code first.

    A replacement that launches nothing is not judged: one that only changes metadata is legal.
    """
    own = jit_functions(files)
    operators = [name for name in observation.operators if not _allowed_operator(name)]
    if operators:
        return f"evidence_operator: {_some(operators)} ran inside the replacement; {_ADVICE}"
    kernels = [name for name in observation.kernels if name not in own and not _TORCH_KERNELS.fullmatch(name)]
    kernels += [name for name in observation.triton_kernels if name not in own]
    if kernels:
        return f"evidence_kernel: {_some(kernels)} ran inside the replacement and is no kernel of the pass; {_ADVICE}"
    if observation.uneven:
        return "evidence_uneven: some calls launch less than others; compute every call's outputs in that call"
    if observation.overflow:
        advice = "launch fewer kernels of different names"
        return f"evidence_overflow: more than {MAX_NAMES} operators and kernels ran inside the replacement; {advice}"
    return None


def jit_functions(files: PassFiles) -> frozenset[str]:
    """Names of the `@triton.jit` functions in a pass's sources; a compiled kernel is called by its function's."""
    return _jit_functions(tuple(files.modules.items()))


@functools.lru_cache(maxsize=8)
def _jit_functions(sources: tuple[tuple[str, str], ...]) -> frozenset[str]:
    siblings = frozenset(name for name, _ in sources)
    parsed = (parse(name, text, siblings, Report()) for name, text in sources)
    return frozenset(clean(kernel) for module in parsed if module is not None for kernel in module.kernels)


def _allowed_operator(name: str) -> bool:
    namespace, _, rest = name.partition(".")
    return namespace == "aten" and rest.partition(".")[0] in OPERATORS


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
