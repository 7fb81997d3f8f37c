"""TorchInductor's host code as a pass has it: allocations, launches and library calls, one after another."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.distill.inductor.kernel_code import KernelCode, kernel_code
from agent.distill.kernels.index_expressions import Unsupported

_INTO = ("mm", "bmm", "addmm", "baddbmm")
"""Library calls that write to memory which TorchInductor has allocated for them."""
_CONVOLUTION = "torch.ops.aten.convolution.default"
_ATTENTION = "torch.ops.aten._scaled_dot_product_efficient_attention.default"
_CHECKS = ("assert_size_stride", "assert_alignment")


@dataclass(frozen=True)
class KernelCall:
    """A launch of a kernel: its tensors as expressions, and the numbers behind them by parameter."""

    kernel: KernelCode
    tensors: tuple[str, ...]
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class HostBuffer:
    """An allocation: its name, and size, stride and dtype as text."""

    name: str
    layout: tuple[str, str, str]


@dataclass(frozen=True)
class HostCode:
    """What the host does, in order; a text is a line of Python. `returned` are expressions."""

    inputs: tuple[str, ...]
    steps: tuple[HostBuffer | KernelCall | str, ...]
    returned: tuple[str, ...]

    @property
    def kernels(self) -> list[KernelCode]:
        """The kernels that are launched."""
        return [step.kernel for step in self.steps if isinstance(step, KernelCall)]

    @property
    def launches(self) -> int:
        """How many kernels and library calls there are."""
        calls = (step.partition(" = ")[2] or step for step in self.steps if isinstance(step, str))
        return len(self.kernels) + sum(call.startswith("torch.") for call in calls)

    @property
    def kernels_alone(self) -> bool:
        """Whether it makes no library call, and launches on whole buffers alone."""
        return all(
            isinstance(step, HostBuffer) or (isinstance(step, KernelCall) and all(map(str.isidentifier, step.tensors)))
            for step in self.steps
            if not isinstance(step, str) or not step.startswith("del ")
        ) and any(isinstance(step, HostBuffer) for step in self.steps)


def host_code(code: str, names: Sequence[str]) -> HostCode:
    """What TorchInductor's output code does with inputs of these names. Raises Unsupported on what no pass may do."""
    tree = ast.parse(code)
    kernels: dict[str, KernelCode] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("async_compile.triton("):
            name, source = (argument.value for argument in node.value.args)
            kernels[name] = kernel_code(name, source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if len(functions) != 1:
        raise Unsupported("output code of TorchInductor in several parts")
    return _Reader(kernels, tuple(names)).read(functions[0])


@dataclass
class _Reader:
    kernels: Mapping[str, KernelCode]
    names: tuple[str, ...]
    given: dict[str, str] = field(default_factory=dict)  # TorchInductor's names of the inputs
    made: set[str] = field(default_factory=set)
    buffers: set[str] = field(default_factory=set)  # those of them that are allocations
    single: set[str] = field(default_factory=set)  # what TorchInductor takes for a tuple, and is its first part
    steps: list[HostBuffer | KernelCall | str] = field(default_factory=list)

    def read(self, function: ast.FunctionDef) -> HostCode:
        *body, returned = function.body
        for statement in body:
            inner = statement.body if isinstance(statement, ast.With) else [statement]
            for each in inner:
                self._statement(each)
        if not isinstance(returned, ast.Return) or not isinstance(returned.value, ast.Tuple):
            raise Unsupported("output code of TorchInductor without a return")
        return HostCode(self.names, tuple(self.steps), tuple(self._tensor(value) for value in returned.value.elts))

    def _statement(self, node: ast.stmt) -> None:
        text = ast.unparse(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value, text)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node.targets[0], node.value, text)
        elif isinstance(node, ast.Delete):
            gone = [t.id for t in node.targets if isinstance(t, ast.Name) and t.id in self.made]
            self.made -= set(gone)
            self.buffers -= set(gone)
            self.steps += [f"del {name}" for name in gone]
        else:
            raise Unsupported(f"TorchInductor's {text}")

    def _call(self, call: ast.Call, text: str) -> None:
        called = ast.unparse(call.func)
        kernel = self.kernels.get(called.removesuffix(".run"))
        if kernel is not None:
            self._launch(kernel, call.args)
        elif called.removeprefix("extern_kernels.") in _INTO:
            self.steps.append(f"torch.{called.removeprefix('extern_kernels.')}({self._arguments(call)})")
        elif called not in (*_CHECKS, "args.clear", "torch.cuda.set_device"):
            raise Unsupported(f"TorchInductor's {text}")

    def _assign(self, target: ast.expr, value: ast.expr, text: str) -> None:
        if isinstance(target, ast.Tuple) and ast.unparse(value) == "args":
            self.given = dict(zip([ast.unparse(each) for each in target.elts], self.names, strict=True))
            return
        name = ast.unparse(target)
        if isinstance(value, ast.List) or not isinstance(target, ast.Name):
            raise Unsupported(f"TorchInductor's {text}")
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if called == "get_raw_stream":
            return
        if called == "empty_strided_cuda":
            self.steps.append(HostBuffer(name, tuple(map(ast.unparse, value.args))))
            self.buffers.add(name)
        elif called == "extern_kernels.convolution":
            self.steps.append(f"{name} = {_CONVOLUTION}({self._arguments(value)})")
        elif called == _ATTENTION:
            self.steps.append(f"{name} = {self._attention(value)}")
            self.single.add(name)
        elif called.startswith("torch.ops.aten."):
            self.steps.append(f"{name} = {called}({self._arguments(value)})")
        else:
            self.steps.append(f"{name} = {self._tensor(value)}")
        self.made.add(name)

    def _launch(self, kernel: KernelCode, given: Sequence[ast.expr]) -> None:
        numbers = [n.value for n in given if isinstance(n, ast.Constant) and type(n.value) is int]
        tensors = [self._tensor(n, address=True) for n in given[: len(given) - len(numbers)]]
        names = kernel.parameters
        if len(names) != len(given):
            raise Unsupported("a launch of TorchInductor's of other arguments than numbers behind tensors")
        self.steps.append(KernelCall(kernel, tuple(tensors), dict(zip(names[len(tensors) :], numbers, strict=True))))

    def _attention(self, call: ast.Call) -> str:
        """Attention by whichever of the library's kernels eager takes."""
        query, key, value, mask, _, *rest = call.args
        operands = ", ".join(self._value(each) for each in (query, key, value))
        options = dict(zip(("dropout_p", "is_causal"), rest, strict=False)) | {k.arg: k.value for k in call.keywords}
        given = {"attn_mask": self._value(mask)} | {k: self._value(v) for k, v in options.items()}
        named = ", ".join(f"{key}={value}" for key, value in given.items())
        return f"torch.nn.functional.scaled_dot_product_attention({operands}, {named})"

    def _arguments(self, call: ast.Call) -> str:
        given = [self._value(each) for each in call.args]
        return ", ".join([*given, *(f"{k.arg}={self._value(k.value)}" for k in call.keywords)])

    def _value(self, node: ast.expr) -> str:
        """An argument of a library call: a tensor, numbers, a dtype, or a list of such."""
        if isinstance(node, ast.List | ast.Tuple):
            comma = "," if isinstance(node, ast.Tuple) and len(node.elts) == 1 else ""
            text = ", ".join(map(self._value, node.elts)) + comma
            return f"[{text}]" if isinstance(node, ast.List) else f"({text})"
        text = ast.unparse(node)
        if text.startswith("torch.") and not isinstance(node, ast.Call):
            return text
        try:
            ast.literal_eval(text)
        except ValueError:
            return self._tensor(node)
        return text

    def _tensor(self, node: ast.expr, address: bool = False) -> str:
        """A tensor; as an `address` without the shape of a view from its beginning."""
        if isinstance(node, ast.Name) and node.id in self.given:
            return self.given[node.id]
        if isinstance(node, ast.Name) and node.id in self.made:
            return node.id
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            whole = self._tensor(node.value)
            if whole not in self.single:
                return f"{whole}[{node.slice.value}]"
            if node.slice.value == 0:
                return whole
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            of, size, stride, offset = node.args
            base, begin = self._tensor(of), ast.unparse(offset)
            if address and begin == "0":
                return base
            return f"{base}.as_strided({ast.unparse(size)}, {ast.unparse(stride)}, {self._begin(base, begin)})"
        raise Unsupported(f"TorchInductor's {ast.unparse(node)}")

    def _begin(self, base: str, offset: str) -> str:
        if base in self.buffers:
            return offset
        own = f"{base}.storage_offset()"
        return own if offset == "0" else f"{own} + {offset}"
